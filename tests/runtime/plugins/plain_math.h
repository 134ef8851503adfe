// The required compute functions for the toy, one element at a time in double: slow and plain, to
// try the core's compositions on. Dtypes: BOOL, I8, I32, I64, BF16, F32, F64.
#include <math.h>

static double load(const chipset_tensor* t, const int64_t* index) {
  int64_t at = 0;
  for (int d = 0; d < t->rank; ++d) at += t->shape[d] == 1 ? 0 : index[d] * t->stride[d];
  switch (t->dtype) {
    case CHIPSET_DTYPE_BOOL:
      return ((const uint8_t*)t->data)[at] != 0;
    case CHIPSET_DTYPE_I8:
      return ((const int8_t*)t->data)[at];
    case CHIPSET_DTYPE_I32:
      return ((const int32_t*)t->data)[at];
    case CHIPSET_DTYPE_I64:
      return (double)((const int64_t*)t->data)[at];
    case CHIPSET_DTYPE_F64:
      return ((const double*)t->data)[at];
    case CHIPSET_DTYPE_BF16: {
      const uint32_t bits = (uint32_t)((const uint16_t*)t->data)[at] << 16;
      float value;
      memcpy(&value, &bits, 4);
      return value;
    }
    default:
      return ((const float*)t->data)[at];
  }
}

static void store(const chipset_tensor* t, const int64_t* index, double value) {
  int64_t at = 0;
  for (int d = 0; d < t->rank; ++d) at += t->shape[d] == 1 ? 0 : index[d] * t->stride[d];
  switch (t->dtype) {
    case CHIPSET_DTYPE_BOOL:
      ((uint8_t*)t->data)[at] = value != 0;
      break;
    case CHIPSET_DTYPE_I8:
      ((int8_t*)t->data)[at] = (int8_t)value;
      break;
    case CHIPSET_DTYPE_I32:
      ((int32_t*)t->data)[at] = (int32_t)value;
      break;
    case CHIPSET_DTYPE_I64:
      ((int64_t*)t->data)[at] = (int64_t)value;
      break;
    case CHIPSET_DTYPE_F64:
      ((double*)t->data)[at] = value;
      break;
    case CHIPSET_DTYPE_BF16: {
      const float narrow = (float)value;
      uint32_t bits;
      memcpy(&bits, &narrow, 4);
      if (isnan(narrow))
        bits |= 0x400000;
      else
        bits += 0x7fff + (bits >> 16 & 1);
      ((uint16_t*)t->data)[at] = (uint16_t)(bits >> 16);
      break;
    }
    default:
      ((float*)t->data)[at] = (float)value;
  }
}

static int next(const chipset_tensor* t, int64_t* index) {
  for (int d = t->rank - 1; d >= 0; --d) {
    if (++index[d] < t->shape[d]) return 1;
    index[d] = 0;
  }
  return 0;
}
static int has_elements(const chipset_tensor* t) {
  for (int d = 0; d < t->rank; ++d)
    if (t->shape[d] == 0) return 0;
  return 1;
}
static int known(const chipset_tensor* t) {
  const int32_t d = t->dtype;
  return d == CHIPSET_DTYPE_BOOL || d == CHIPSET_DTYPE_I8 ||
         (d >= CHIPSET_DTYPE_I32 && d <= CHIPSET_DTYPE_F64 && d != CHIPSET_DTYPE_F16);
}

static int evaluate(int32_t op, const double* x, const chipset_scalar* p, int64_t i, double* y) {
  const double p0 = p[0].f;
  switch (op) {
    case CHIPSET_POINTWISE_OP_COPY:
      *y = x[0];
      return 1;
    case CHIPSET_POINTWISE_OP_FILL:
      *y = p0;
      return 1;
    case CHIPSET_POINTWISE_OP_ARANGE:
      *y = p0 + p[1].f * (double)i;
      return 1;
    case CHIPSET_POINTWISE_OP_ADD:
      *y = x[0] + p0 * x[1];
      return 1;
    case CHIPSET_POINTWISE_OP_SUB:
      *y = x[0] - p0 * x[1];
      return 1;
    case CHIPSET_POINTWISE_OP_MUL:
      *y = x[0] * x[1];
      return 1;
    case CHIPSET_POINTWISE_OP_DIV:
      *y = x[0] / x[1];
      return 1;
    case CHIPSET_POINTWISE_OP_POW:
      *y = pow(x[0], x[1]);
      return 1;
    case CHIPSET_POINTWISE_OP_MAXIMUM:
      *y = x[0] > x[1] ? x[0] : x[1];
      return 1;
    case CHIPSET_POINTWISE_OP_EQ:
      *y = x[0] == x[1];
      return 1;
    case CHIPSET_POINTWISE_OP_LT:
      *y = x[0] < x[1];
      return 1;
    case CHIPSET_POINTWISE_OP_GT:
      *y = x[0] > x[1];
      return 1;
    case CHIPSET_POINTWISE_OP_GE:
      *y = x[0] >= x[1];
      return 1;
    case CHIPSET_POINTWISE_OP_LOGICAL_AND:
      *y = x[0] != 0 && x[1] != 0;
      return 1;
    case CHIPSET_POINTWISE_OP_ABS:
      *y = fabs(x[0]);
      return 1;
    case CHIPSET_POINTWISE_OP_ROUND:
      *y = nearbyint(x[0]);
      return 1;
    case CHIPSET_POINTWISE_OP_EXP:
      *y = exp(x[0]);
      return 1;
    case CHIPSET_POINTWISE_OP_LOG:
      *y = log(x[0]);
      return 1;
    case CHIPSET_POINTWISE_OP_SQRT:
      *y = sqrt(x[0]);
      return 1;
    case CHIPSET_POINTWISE_OP_RSQRT:
      *y = 1 / sqrt(x[0]);
      return 1;
    case CHIPSET_POINTWISE_OP_TANH:
      *y = tanh(x[0]);
      return 1;
    case CHIPSET_POINTWISE_OP_CLAMP:
      *y = fmin(fmax(x[0], p0), p[1].f);
      return 1;
    case CHIPSET_POINTWISE_OP_WHERE:
      *y = x[0] != 0 ? x[1] : x[2];
      return 1;
    case CHIPSET_POINTWISE_OP_LERP:
      *y = x[0] + x[2] * (x[1] - x[0]);
      return 1;
    case CHIPSET_POINTWISE_OP_ADDCMUL:
      *y = x[0] + p0 * x[1] * x[2];
      return 1;
    default:
      return 0;
  }
}

static chipset_status pointwise(chipset_stream stream, const chipset_pointwise_args* args) {
  (void)stream;
  if (!known(args->output)) return fail(CHIPSET_STATUS_UNSUPPORTED, "plain: dtype of output");
  for (int k = 0; k < args->num_inputs; ++k)
    if (args->input[k] && !known(args->input[k]))
      return fail(CHIPSET_STATUS_UNSUPPORTED, "plain: dtype of input");
  if (!has_elements(args->output)) return CHIPSET_STATUS_OK;
  int64_t index[CHIPSET_MAX_RANK] = {0};
  int64_t i = 0;
  do {
    double x[4] = {0};
    double y = 0;
    for (int k = 0; k < args->num_inputs; ++k)
      x[k] = args->input[k] ? load(args->input[k], index) : args->immediate[k].f;
    if (!evaluate(args->op, x, args->param, i++, &y))
      return fail(CHIPSET_STATUS_UNSUPPORTED, "plain: operation");
    store(args->output, index, y);
  } while (next(args->output, index));
  return CHIPSET_STATUS_OK;
}

static chipset_status reduce(chipset_stream stream, const chipset_reduce_args* args) {
  (void)stream;
  const chipset_tensor* in = args->input;
  if (args->op > CHIPSET_REDUCE_OP_MAX || args->op == CHIPSET_REDUCE_OP_PROD)
    return fail(CHIPSET_STATUS_UNSUPPORTED, "plain: reduction");
  int64_t index[CHIPSET_MAX_RANK] = {0};
  if (!has_elements(args->output)) return CHIPSET_STATUS_OK;
  do {
    int64_t at[CHIPSET_MAX_RANK];
    memcpy(at, index, sizeof at);
    double total = args->op == CHIPSET_REDUCE_OP_MAX ? -INFINITY : 0;
    int64_t count = 0;
    for (int more = has_elements(in); more;) {
      const double x = load(in, at);
      if (args->op == CHIPSET_REDUCE_OP_MAX)
        total = x > total || isnan(x) ? x : total;
      else
        total += x;
      ++count;
      more = 0;
      for (int d = in->rank - 1; d >= 0 && !more; --d) {
        if (!(args->dims >> d & 1)) continue;
        if (++at[d] < in->shape[d])
          more = 1;
        else
          at[d] = 0;
      }
    }
    store(args->output, index, args->op == CHIPSET_REDUCE_OP_MEAN ? total / (double)count : total);
  } while (next(args->output, index));
  return CHIPSET_STATUS_OK;
}

static chipset_status gemm(chipset_stream stream, const chipset_gemm_args* args) {
  (void)stream;
  const chipset_tensor* d = args->d;
  if (args->activation) return fail(CHIPSET_STATUS_UNSUPPORTED, "plain: activation");
  const int r = d->rank;
  int64_t at[CHIPSET_MAX_RANK] = {0};
  if (!has_elements(d)) return CHIPSET_STATUS_OK;
  do {
    double sum = 0;
    int64_t row[3] = {at[0], at[r - 2], 0};
    int64_t column[3] = {at[0], 0, at[r - 1]};
    for (int64_t k = 0; k < args->a->shape[r - 1]; ++k) {
      row[r - 1] = k;
      column[r - 2] = k;
      if (r == 2) row[0] = at[0], column[1] = at[1];
      sum += load(args->a, row) * load(args->b, column);
    }
    sum *= args->alpha;
    if (args->beta != 0) sum += args->beta * load(args->c, at);
    if (args->bias) sum += load(args->bias, &at[r - 1]);
    store(d, at, sum);
  } while (next(d, at));
  return CHIPSET_STATUS_OK;
}

// Adds what the indices say to a view's address.
static int indexed(chipset_tensor* view, const int64_t* at, int32_t count,
                   const chipset_tensor* const* index, const int64_t* size, const int64_t* stride) {
  static const int kBytes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  for (int k = 0; k < count; ++k) {
    int64_t i = (int64_t)load(index[k], at);
    if (i < -size[k] || i >= size[k]) return 0;
    if (i < 0) i += size[k];
    view->data = (char*)view->data + i * stride[k] * kBytes[view->dtype];
  }
  return 1;
}
static chipset_status gather(chipset_stream stream, const chipset_gather_args* a) {
  (void)stream;
  int64_t at[CHIPSET_MAX_RANK] = {0};
  if (!has_elements(a->output)) return CHIPSET_STATUS_OK;
  do {
    chipset_tensor view = *a->input;
    if (!indexed(&view, at, a->num_indices, a->index, a->indexed_size, a->indexed_stride))
      return fail(CHIPSET_STATUS_OUT_OF_RANGE, "plain: an index is out of range");
    store(a->output, at, load(&view, at));
  } while (next(a->output, at));
  return CHIPSET_STATUS_OK;
}
static chipset_status scatter(chipset_stream stream, const chipset_scatter_args* a) {
  (void)stream;
  if (a->op > CHIPSET_SCATTER_OP_ADD) return fail(CHIPSET_STATUS_UNSUPPORTED, "plain: scatter");
  int64_t at[CHIPSET_MAX_RANK] = {0};
  if (!has_elements(a->source)) return CHIPSET_STATUS_OK;
  do {
    chipset_tensor view = *a->destination;
    if (!indexed(&view, at, a->num_indices, a->index, a->indexed_size, a->indexed_stride))
      return fail(CHIPSET_STATUS_OUT_OF_RANGE, "plain: an index is out of range");
    const double x = a->source->data ? load(a->source, at) : a->value.f;
    store(&view, at, a->op == CHIPSET_SCATTER_OP_ADD ? load(&view, at) + x : x);
  } while (next(a->source, at));
  return CHIPSET_STATUS_OK;
}
