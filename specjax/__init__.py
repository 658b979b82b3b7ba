"""specjax: the speed of light of speculative decoding, and how near you are.

Letters that name the axes of arrays everywhere in this package but in `theory`,
which counts texts and starts and says which letters of its own it has for them:

  B  batch rows                      Q  query heads
  T  query tokens of one pass        K  key/value heads
  S  cache slots                     G  queries that share a key head, Q / K
  E  model width                     H  head dimension
  F  feed-forward width              V  vocabulary
  L  layers                          R  replicas
  N  tree nodes, the root included   A  accepted-path slots, depth limit + 1

`D` is the number of tokens that one iteration emits, the bonus token included.
The root of a draft tree is the last committed token, so a tree of `N` nodes is
a verifier pass of `N` tokens and `D` lies between 1 and `N`.  Logarithms are
natural (nats) and times are seconds.  `log_p` is a log-probability under the
verifier, `log_q` one under the drafter.
"""
