"""How many tokens any draft tree can win, from the verifier's own laws.

Arrays in, numbers out.  The letters of this folder, beside those of `specjax`:

  c           a context; `w` a continuation of it, which is a node of the tree
  p(w)        product of the next-token probabilities along `w`, of the law that
              is really sampled: after temperature and filters
  s, S_n      surprisal `-log p` of a sampled token; sum of the first n of them
  mu, mu2     `E[s]`, the mean entropy; `E[s^2]`
  t, theta    a threshold on surprisals and the one on probabilities, `e^-t`
"""
