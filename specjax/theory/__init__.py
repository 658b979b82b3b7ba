"""How many tokens any draft tree can win, from the verifier's own laws.

Arrays in, numbers out.  `N`, `V` and `D` are those of `specjax`.  Other letters
name other axes here, where texts and starts are counted and no model is run:

  R  texts or prompts                M  starts, each with its draft tree
  T  tokens of a text                C  capacities, or other groups of tokens
  K  tokens of a law's head, its     G  values of a parameter that are tried, or
     most probable; points of a         laws that a process changes between
     curve                           S  resamples of the bootstrap

What has an axis of its own kind says so where it is used.  In formulas:

  c           a context; `w` a continuation of it, which is a node of the tree
  T           a draft tree, the set of its nodes
  p(w)        product of the next-token probabilities along `w`, of the law that
              is really sampled: after temperature and filters
  s, S_n      surprisal `-log p` of a sampled token; sum of the first n of them
  mu, mu2     `E[s]`, the mean entropy; `E[s^2]`
  t, theta    a threshold on surprisals and the one on probabilities, `e^-t`
"""
