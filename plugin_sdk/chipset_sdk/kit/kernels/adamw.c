// One AdamW step over up to TENSORS tensors at once. Each is a stretch of memory; its elements are
// dealt out in blocks. P: parameter, G: gradient, M and V: moments, H: the largest second moment,
// with AMSGRAD.
typedef struct {
  i64 first_block[TENSORS + 1], size[TENSORS];
} Extents;
typedef struct {
  sc lr, log_beta1, log_beta2, beta1, beta2, rest1, rest2, eps, weight_decay, sign;
} Numbers;
#define EACH(type, name)                                                                    \
  type *name##0, type *name##1, type *name##2, type *name##3, type *name##4, type *name##5, \
      type *name##6, type *name##7
#define ALL_OF(name) {name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7}

KERNEL(adamw)(EACH(GLOBAL TYPE(P), p), EACH(const GLOBAL TYPE(G), g), EACH(GLOBAL TYPE(M), m),
              EACH(GLOBAL TYPE(V), v), EACH(GLOBAL TYPE(H), h), EACH(const GLOBAL f32, t),
              const GLOBAL f32* lr_given, const GLOBAL f32* grad_scale, const GLOBAL f32* found_inf,
              const i32 given, const i32 decoupled, const i32 tensors, const Extents extents,
              const Numbers numbers) {
  GLOBAL TYPE(P)* const params[TENSORS] = ALL_OF(p);
  const GLOBAL TYPE(G)* const grads[TENSORS] = ALL_OF(g);
  GLOBAL TYPE(M)* const firsts[TENSORS] = ALL_OF(m);
  GLOBAL TYPE(V)* const seconds[TENSORS] = ALL_OF(v);
  GLOBAL TYPE(H)* const highests[TENSORS] = ALL_OF(h);
  const GLOBAL f32* const steps[TENSORS] = ALL_OF(t);
  if ((given & 4) && *found_inf == 1.0f) return;
  const sc lr = given & 1 ? (sc)*lr_given : numbers.lr;
  const sc factor = given & 2 ? numbers.sign / (sc)*grad_scale : numbers.sign;
  const sc shrink = decoupled ? lr * numbers.weight_decay : K(0);
  const sc decay = decoupled ? K(0) : numbers.weight_decay;
  ROWS_OF(extents.first_block[tensors]) {
    i32 k = 0;
    while (row >= extents.first_block[k + 1]) ++k;
    // 1 - beta^step, which for a beta near 1 would lose its digits as a difference.
    const sc step = (sc)*steps[k];
    const sc step_size = lr / -expm1(step * numbers.log_beta1);
    const sc correction = K(1) / sqrt(-expm1(step * numbers.log_beta2));
    const i64 begin = (row - extents.first_block[k]) * BLOCK;
    const i64 end = begin + BLOCK < extents.size[k] ? begin + BLOCK : extents.size[k];
    GLOBAL TYPE(P)* const param = params[k];
    const GLOBAL TYPE(G)* const grad = grads[k];
    GLOBAL TYPE(M)* const first = firsts[k];
    GLOBAL TYPE(V)* const second = seconds[k];
    for (i64 i = begin + LANE * W; i < end; i += LANES * W) {
      const i32 n = end - i < W ? (i32)(end - i) : W;
      const vc w = CV(C, LOAD_N(P, param, i, 1, n, 0));
      const vc gradient = CV(C, LOAD_N(G, grad, i, 1, n, 0)) * factor + w * decay;
      const vc m = CV(C, LOAD_N(M, first, i, 1, n, 0)) * numbers.beta1 + gradient * numbers.rest1;
      const vc v = CV(C, LOAD_N(V, second, i, 1, n, 0)) * numbers.beta2 +
                   gradient * gradient * numbers.rest2;
#if AMSGRAD
      const vc before = CV(C, LOAD_N(H, highests[k], i, 1, n, 0));
      const vc scale = v > before || v != v ? v : before;
      STORE_N(H, highests[k], i, 1, n, CV(CLASS(H), scale));
#else
      const vc scale = v;
#endif
      STORE_N(M, first, i, 1, n, CV(CLASS(M), m));
      STORE_N(V, second, i, 1, n, CV(CLASS(V), v));
      // The small terms first: the parameter is rounded once.
      const vc change = w * shrink + step_size * m / (sqrt(scale) * correction + numbers.eps);
      STORE_N(P, param, i, 1, n, CV(CLASS(P), w - change));
    }
  }
}
