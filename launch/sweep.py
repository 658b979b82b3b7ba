#!/usr/bin/env python3
"""Runs a grid of flags: launch/sweep.py --grid=launch/sweeps/NAME.txt [FLAGS].

Any Python will do: the sweep itself runs in the project's environment.
"""

import os
import pathlib
import sys

if __name__ == '__main__':
  run = str(pathlib.Path(__file__).resolve().parent / 'run.sh')
  os.execv(run, [run, 'sweep', *sys.argv[1:]])
