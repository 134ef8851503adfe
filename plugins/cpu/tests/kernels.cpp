// SPDX-License-Identifier: Apache-2.0
// Every compute function of the table, over dtypes, layouts and sizes around the widths of vectors
// and tiles, from two threads at once. That results are right is held by the Python tests; here it
// is that no byte beyond a tensor is touched, that two runs give the same bits, that threads do not
// race, and that a call which declines has written nothing.
//
// Usage: kernels LIBRARY [ISA]
#include <chrono>
#include <map>
#include <thread>

#include "harness.h"
#include "pointwise_ops.h"

using namespace harness;

namespace {

constexpr int kFloats[] = {CHIPSET_DTYPE_F32, CHIPSET_DTYPE_BF16, CHIPSET_DTYPE_F16,
                           CHIPSET_DTYPE_F64};
constexpr int kNumbers[] = {CHIPSET_DTYPE_BOOL, CHIPSET_DTYPE_U8,     CHIPSET_DTYPE_I8,
                            CHIPSET_DTYPE_I16,  CHIPSET_DTYPE_I32,    CHIPSET_DTYPE_I64,
                            CHIPSET_DTYPE_F16,  CHIPSET_DTYPE_BF16,   CHIPSET_DTYPE_F32,
                            CHIPSET_DTYPE_F64,  CHIPSET_DTYPE_F8E4M3, CHIPSET_DTYPE_F8E5M2};

// One thread's work: its stream and where its seeds begin.
struct Worker {
  chipset_stream stream = nullptr;
  uint64_t seed = 0;
  Case fresh() { return Case(++seed); }
};

std::map<std::string, Count>& counts() {
  static auto* const all = new std::map<std::string, Count>;
  return *all;
}

#define RUN(name, c, args) run(#name, counts().at(#name), c, w.stream, api->name, args)

chipset_scalar scalar(double f) { return {f, static_cast<int64_t>(f)}; }

void pointwise(Worker& w) {
  const Shape shapes[] = {{}, {1}, {17}, {0, 3}, {3, 33}, {2, 3, 16}};
  for (int op = 0; op < chipset::cpu::kOpCount; ++op) {
    const int arity = chipset::cpu::kOpInfo[op].arity;
    int turn = op;
    for (const int dtype : kNumbers) {
      for (const Shape& shape : shapes) {
        Case c = w.fresh();
        auto args = make<chipset_pointwise_args>();
        args.op = op;
        args.compute_dtype = dtype;
        args.num_inputs = arity;
        const int out = chipset::cpu::is_predicate(op) ? CHIPSET_DTYPE_BOOL : dtype;
        args.output = c.tensor(out, shape, static_cast<Layout>(++turn % kRepeated));
        for (int i = 0; i < arity; ++i) {
          const bool condition = op == CHIPSET_POINTWISE_OP_WHERE && i == 0;
          const int in = condition ? CHIPSET_DTYPE_BOOL : dtype;
          args.input[i] = c.tensor(in, shape, static_cast<Layout>(++turn % kLayouts));
        }
        if (arity == 2 && turn % 3 == 0) {
          args.input[1] = nullptr;
          args.immediate[1] = scalar(3);
        }
        for (int i = 0; i < 4; ++i) args.param[i] = scalar(i + 1);
        RUN(pointwise, c, args);
      }
    }
  }
  // Conversions between any two dtypes, and sizes that threads share.
  for (const int from : kNumbers) {
    for (const int to : kNumbers) {
      for (const Shape& shape : {Shape{129}, Shape{7, 19}}) {
        Case c = w.fresh();
        auto args = make<chipset_pointwise_args>();
        args.op = CHIPSET_POINTWISE_OP_COPY;
        args.compute_dtype = from;
        args.num_inputs = 1;
        args.output = c.tensor(to, shape, static_cast<Layout>(w.seed % kRepeated));
        args.input[0] = c.tensor(from, shape, static_cast<Layout>(w.seed % kLayouts));
        RUN(pointwise, c, args);
      }
    }
  }
  for (const Layout layout : {kRows, kColumns, kRepeated}) {
    for (const int dtype : kFloats) {
      Case c = w.fresh();
      auto args = make<chipset_pointwise_args>();
      args.op = CHIPSET_POINTWISE_OP_ADD;
      args.compute_dtype = dtype;
      args.num_inputs = 2;
      args.param[0] = scalar(1);
      args.output = c.tensor(dtype, {300, 257});
      args.input[0] = args.output;  // in place
      args.input[1] = c.tensor(dtype, {300, 257}, layout);
      RUN(pointwise, c, args);
    }
  }
}

void reduce(Worker& w) {
  struct Reduction {
    Shape shape;
    uint32_t dims;
  };
  const Reduction cases[] = {{{1}, 1},        {{37}, 1},      {{5, 33}, 2}, {{33, 5}, 1},
                             {{4, 6, 17}, 5}, {{4, 0}, 2},    {{0, 3}, 2},  {{2, 3, 4}, 7},
                             {{3, 70000}, 2}, {{3000, 40}, 1}};
  for (int op = 0; op <= CHIPSET_REDUCE_OP_NANSUM; ++op) {
    for (const int dtype : kNumbers) {
      for (const Reduction& r : cases) {
        const bool large = r.shape.size() == 2 && r.shape[0] * r.shape[1] > 10000;
        if (large && dtype != CHIPSET_DTYPE_F32 && dtype != CHIPSET_DTYPE_BF16) continue;
        Case c = w.fresh();
        auto args = make<chipset_reduce_args>();
        Shape reduced = r.shape;
        int64_t terms = 1;
        for (size_t d = 0; d < reduced.size(); ++d) {
          if ((r.dims >> d & 1) == 0) continue;
          terms *= reduced[d];
          reduced[d] = 1;
        }
        const bool arg = op == CHIPSET_REDUCE_OP_ARGMAX || op == CHIPSET_REDUCE_OP_ARGMIN;
        const bool whole = arg || op == CHIPSET_REDUCE_OP_COUNT_NONZERO;
        const bool logical = op == CHIPSET_REDUCE_OP_ANY || op == CHIPSET_REDUCE_OP_ALL;
        const bool extreme = op == CHIPSET_REDUCE_OP_MAX || op == CHIPSET_REDUCE_OP_MIN;
        if ((arg || extreme) && terms == 0) continue;  // these have no identity
        args.op = op;
        args.compute_dtype = dtype;
        args.dims = r.dims;
        args.input = c.tensor(dtype, r.shape, static_cast<Layout>(w.seed % kLayouts));
        args.output = c.tensor(whole     ? CHIPSET_DTYPE_I64
                               : logical ? CHIPSET_DTYPE_BOOL
                                         : dtype,
                               reduced);
        args.param[0] = scalar(op == CHIPSET_REDUCE_OP_NORM ? 2 : 1);
        const bool one = (r.dims & (r.dims - 1)) == 0;
        if (extreme && one) {
          args.indices = c.tensor(CHIPSET_DTYPE_I64, reduced);
        }
        RUN(reduce, c, args);
      }
    }
  }
}

void gemm(Worker& w) {
  struct Size {
    int64_t m, n, k;
  };
  const Size sizes[] = {{1, 1, 1},     {1, 70, 33},    {3, 5, 7},      {14, 32, 16}, {15, 33, 17},
                        {16, 16, 16},  {17, 130, 65},  {64, 1, 40},    {5, 0, 3},    {4, 6, 0},
                        {90, 97, 101}, {29, 65, 1100}, {200, 150, 90}, {2, 600, 700}};
  for (const int dtype : kFloats) {
    for (const Size& s : sizes) {
      for (int layouts = 0; layouts < 4; ++layouts) {
        Case c = w.fresh();
        auto args = make<chipset_gemm_args>();
        const int more = static_cast<int>(w.seed % 5);
        const int64_t batch = more == 0 && s.m * s.n * s.k < 100000 ? 3 : 0;
        const auto shape = [&](int64_t rows, int64_t columns) {
          return batch > 0 ? Shape{batch, rows, columns} : Shape{rows, columns};
        };
        args.a = c.tensor(dtype, shape(s.m, s.k), layouts & 1 ? kColumns : kRows);
        args.b = c.tensor(dtype, shape(s.k, s.n), layouts & 2 ? kColumns : kRows);
        const int out = more == 1 && is_small(dtype) ? CHIPSET_DTYPE_F32 : dtype;
        args.d = c.tensor(out, shape(s.m, s.n), more == 2 ? kGaps : more == 3 ? kColumns : kRows);
        args.alpha = 1;
        if (more >= 3) {
          args.alpha = 0.5;
          args.beta = 2;
          args.c = more == 3 ? args.d : c.tensor(dtype, shape(s.m, s.n), kRepeated);
          args.bias = c.tensor(dtype, {s.n});
          args.activation = CHIPSET_ACTIVATION_RELU + static_cast<int>(w.seed % 4);
        }
        RUN(gemm, c, args);
      }
    }
  }
}

void gather_and_scatter(Worker& w) {
  const int all[] = {CHIPSET_DTYPE_BOOL, CHIPSET_DTYPE_I16, CHIPSET_DTYPE_BF16,
                     CHIPSET_DTYPE_F32,  CHIPSET_DTYPE_F64, CHIPSET_DTYPE_OPAQUE128};
  for (const int dtype : all) {
    for (const int index : {CHIPSET_DTYPE_I32, CHIPSET_DTYPE_I64}) {
      for (const int64_t columns : {1, 5, 64}) {
        for (const int64_t rows : {0, 3, 200}) {
          Case c = w.fresh();
          const int64_t table = 11;
          // Whole rows, as an embedding has them.
          const chipset_tensor* source = c.tensor(dtype, {table, columns}, kGaps);
          auto* view = const_cast<chipset_tensor*>(c.tensor(dtype, {rows, columns}));
          auto* index_view = const_cast<chipset_tensor*>(c.random_indices(index, {rows}, table));
          const int64_t row_stride = source->stride[0];
          chipset_tensor input = *source;
          input.shape[0] = rows;
          input.stride[0] = 0;
          chipset_tensor broadcast = *index_view;
          broadcast.rank = 2;
          broadcast.shape[1] = columns;
          broadcast.stride[0] = 1;
          broadcast.stride[1] = 0;
          auto g = make<chipset_gather_args>();
          g.num_indices = 1;
          g.output = view;
          g.input = &input;
          g.index[0] = &broadcast;
          g.indexed_size[0] = table;
          g.indexed_stride[0] = row_stride;
          RUN(gather, c, g);
          for (int op = 0; op <= CHIPSET_SCATTER_OP_MAX; ++op) {
            auto s = make<chipset_scatter_args>();
            s.op = op;
            s.num_indices = 1;
            s.destination = &input;
            s.source = view;
            s.index[0] = &broadcast;
            s.indexed_size[0] = table;
            s.indexed_stride[0] = row_stride;
            RUN(scatter, c, s);
          }
        }
      }
    }
  }
}

void attention(Worker& w) {
  struct Size {
    int64_t heads, key_heads, queries, keys, dim, value_dim;
  };
  const Size sizes[] = {{1, 1, 1, 1, 1, 1},     {2, 1, 5, 9, 8, 8},      {4, 2, 33, 65, 16, 16},
                        {3, 3, 70, 70, 64, 64}, {2, 2, 130, 67, 24, 40}, {2, 1, 1, 300, 64, 64}};
  for (const int dtype : kFloats) {
    for (const Size& s : sizes) {
      for (int kind = 0; kind < 6; ++kind) {
        Case c = w.fresh();
        const int64_t batch = 2;
        const Shape q{batch, s.heads, s.queries, s.dim}, k{batch, s.key_heads, s.keys, s.dim};
        const Shape v{batch, s.key_heads, s.keys, s.value_dim};
        const Shape out{batch, s.heads, s.queries, s.value_dim};
        auto args = make<chipset_attention_args>();
        args.q = c.tensor(dtype, q, kind == 1 ? kGaps : kRows);
        args.k = c.tensor(dtype, k, kind == 1 ? kGaps : kRows);
        args.v = c.tensor(dtype, v);
        args.out = c.tensor(dtype, out);
        args.lse = c.tensor(wide(dtype), {batch, s.heads, s.queries});
        args.scale = 0.3;
        args.window_left = args.window_right = -1;
        args.causal_offset = s.keys - s.queries;
        if (kind == 1) args.flags = 1;
        if (kind == 2) {
          args.flags = 1;
          args.window_left = 10;
        }
        if (kind == 3) {
          args.mask = c.tensor(CHIPSET_DTYPE_BOOL, {batch, s.heads, s.queries, s.keys}, kRepeated);
        }
        if (kind == 4) {
          args.mask = c.tensor(dtype, {batch, s.heads, s.queries, s.keys});
          args.logit_softcap = 3;
        }
        if (kind == 5 && s.queries == s.keys) {  // FlashMask columns: two packed sequences
          args.flags = 1;
          std::vector<int64_t> starts;
          for (int64_t i = 0; i < batch * s.keys; ++i) {
            starts.push_back(i % s.keys < s.keys / 2 ? s.keys / 2 : s.keys);
          }
          args.startend_row_indices = c.indices(CHIPSET_DTYPE_I32, {batch, 1, s.keys, 1}, starts);
        }
        RUN(attention, c, args);
        args.dout = c.tensor(dtype, out);
        args.dq = c.tensor(dtype, q);
        args.dk = c.tensor(dtype, k);
        args.dv = c.tensor(dtype, v);
        RUN(attention_backward, c, args);
      }
    }
  }
}

void attention_paged(Worker& w) {
  for (const int dtype : kFloats) {
    for (const int64_t dim : {8, 33, 64}) {
      for (const int64_t window : {-1, 5}) {
        Case c = w.fresh();
        const int64_t block = 4, blocks = 20, key_heads = 2, heads = 4, tokens = 8;
        auto args = make<chipset_attention_paged_args>();
        args.max_query = 5;
        args.q = c.tensor(dtype, {tokens, heads, dim});
        args.k_cache = c.tensor(dtype, {blocks, block, key_heads, dim});
        args.v_cache = c.tensor(dtype, {blocks, block, key_heads, dim});
        args.block_table = c.random_indices(CHIPSET_DTYPE_I32, {3, 8}, blocks);
        args.query_start = c.indices(CHIPSET_DTYPE_I32, {4}, {0, 5, 6, 7});
        args.kv_len = c.indices(CHIPSET_DTYPE_I32, {3}, {5, 1, 30});
        args.out = c.tensor(dtype, {tokens, heads, dim});
        args.scale = 0.2;
        args.window_left = window;
        RUN(attention_paged, c, args);
      }
    }
  }
}

void softmax_and_norm(Worker& w) {
  for (const int dtype : kFloats) {
    for (const int64_t rows : {1, 7, 300}) {
      for (const int64_t columns : {1, 15, 16, 33, 576, 1030}) {
        for (const Layout layout : {kRows, kGaps, kColumns}) {
          for (const int log : {0, 1}) {
            Case c = w.fresh();
            auto s = make<chipset_softmax_args>();
            s.dim = static_cast<int32_t>((w.seed + static_cast<uint64_t>(log)) % 2);
            s.log = log;
            s.input = c.tensor(dtype, {rows, columns}, layout);
            s.output = c.tensor(dtype, {rows, columns});
            RUN(softmax, c, s);
            s.result = c.tensor(dtype, {rows, columns}, layout);
            RUN(softmax_backward, c, s);
          }
          for (const int kind : {0, 1}) {
            Case c = w.fresh();
            auto n = make<chipset_norm_args>();
            n.kind = kind;
            n.eps = 1e-5;
            n.x = c.tensor(dtype, {rows, columns}, layout);
            n.weight = w.seed % 3 != 0 ? c.tensor(dtype, {columns}) : nullptr;
            n.bias = kind == 1 ? c.tensor(dtype, {columns}) : nullptr;
            n.y = c.tensor(dtype, {rows, columns});
            n.mean = kind == 1 ? c.tensor(wide(dtype), {rows}) : nullptr;
            n.rstd = c.tensor(wide(dtype), {rows});
            RUN(norm, c, n);
            n.y = nullptr;
            n.dy = c.tensor(dtype, {rows, columns});
            n.dx = c.tensor(dtype, {rows, columns});
            n.dweight = n.weight != nullptr ? c.tensor(dtype, {columns}) : nullptr;
            n.dbias = n.bias != nullptr ? c.tensor(dtype, {columns}) : nullptr;
            RUN(norm_backward, c, n);
          }
        }
      }
    }
  }
}

void rotary(Worker& w) {
  for (const int dtype : kFloats) {
    for (const int64_t dim : {2, 10, 64, 66}) {
      for (int kind = 0; kind < 4; ++kind) {
        Case c = w.fresh();
        auto args = make<chipset_rotary_args>();
        args.interleaved = kind & 1;
        args.inverse = kind >> 1;
        const int64_t rotated = dim > 10 ? dim - 2 : dim;
        args.x = c.tensor(dtype, {2, 3, 17, dim}, kGaps);
        args.cos = c.tensor(CHIPSET_DTYPE_F32, {2, 17, rotated}, kRepeated);
        args.sin = c.tensor(CHIPSET_DTYPE_F32, {2, 17, rotated}, kRepeated);
        args.y = kind == 0 ? args.x : c.tensor(dtype, {2, 3, 17, dim});
        RUN(rotary, c, args);
      }
    }
  }
}

void cross_entropy(Worker& w) {
  for (const int dtype : kFloats) {
    for (const int64_t rows : {1, 5, 200}) {
      for (const int64_t classes : {1, 17, 1000}) {
        Case c = w.fresh();
        auto args = make<chipset_cross_entropy_args>();
        args.ignore_index = -100;
        args.label_smoothing = w.seed % 2 == 0 ? 0.1 : 0;
        args.logits = c.tensor(dtype, {rows, classes}, classes > 1 ? kGaps : kRows);
        args.target = c.random_indices(CHIPSET_DTYPE_I64, {rows}, classes);
        static_cast<int64_t*>(args.target->data)[0] = -100;
        args.loss = c.tensor(wide(dtype), {rows});
        args.lse = c.tensor(wide(dtype), {rows});
        RUN(cross_entropy, c, args);
        args.dloss = c.tensor(wide(dtype), {rows});
        args.dlogits = w.seed % 3 == 0 ? args.logits : c.tensor(dtype, {rows, classes});
        RUN(cross_entropy_backward, c, args);
      }
    }
  }
}

void adamw(Worker& w) {
  for (const int dtype : kFloats) {
    for (const int state : {dtype, static_cast<int>(wide(dtype))}) {
      for (const int kind : {0, 1, 2}) {
        Case c = w.fresh();
        std::vector<chipset_tensor> param, grad, average, square, most, step;
        for (const int64_t n : {1, 33, 5000, 0}) {
          param.push_back(*c.tensor(dtype, {n}));
          grad.push_back(*c.tensor(dtype, {n}));
          average.push_back(*c.tensor(state, {n}));
          square.push_back(*c.tensor(state, {n}));
          most.push_back(*c.tensor(state, {n}));
          step.push_back(*c.tensor(CHIPSET_DTYPE_F32, {}));
          *static_cast<float*>(step.back().data) = 3;
        }
        auto args = make<chipset_adamw_args>();
        args.num_tensors = static_cast<uint32_t>(param.size());
        args.param = param.data();
        args.grad = grad.data();
        args.exp_avg = average.data();
        args.exp_avg_sq = square.data();
        args.max_exp_avg_sq = kind == 1 ? most.data() : nullptr;
        args.step = step.data();
        args.lr = 1e-3;
        args.beta1 = 0.9;
        args.beta2 = 0.99;
        args.eps = 1e-8;
        args.weight_decay = 0.1;
        args.decoupled = kind != 2;
        args.maximize = kind == 2;
        RUN(adamw, c, args);
      }
    }
  }
}

void quantized(Worker& w) {
  for (const int codes : {CHIPSET_DTYPE_I8, CHIPSET_DTYPE_I4, CHIPSET_DTYPE_F8E4M3}) {
    for (const int dtype : kFloats) {
      for (const int64_t k : {2, 34, 64, 300}) {
        for (const int64_t group : {0, 32}) {
          for (const bool zero_point : {false, true}) {
            if (zero_point && codes == CHIPSET_DTYPE_F8E4M3) continue;
            Case c = w.fresh();
            const int64_t rows = 19, groups = group == 0 ? 1 : (k + group - 1) / group;
            auto q = make<chipset_quantize_args>();
            q.group_size = group;
            q.x = c.tensor(dtype, {rows, k});
            q.q = c.tensor(codes, {rows, k});
            q.scale = c.tensor(CHIPSET_DTYPE_F32, {rows, groups});
            q.zero_point = zero_point ? c.tensor(CHIPSET_DTYPE_I32, {rows, groups}) : nullptr;
            RUN(quantize, c, q);
            RUN(dequantize, c, q);
            for (const int64_t m : {1, 3, 18}) {
              auto g = make<chipset_gemm_quantized_args>();
              g.group_size = group;
              g.x = c.tensor(dtype, {m, k});
              g.w = q.q;
              g.w_scale = q.scale;
              g.w_zero_point = q.zero_point;
              g.bias = m == 3 ? c.tensor(dtype, {rows}) : nullptr;
              g.d = c.tensor(dtype, {m, rows});
              RUN(gemm_quantized, c, g);
              g.bias = nullptr;
              g.x = c.tensor(CHIPSET_DTYPE_I8, {m, k});
              g.x_scale = c.tensor(CHIPSET_DTYPE_F32, {m});
              RUN(gemm_quantized, c, g);
            }
          }
        }
      }
    }
  }
}

void scan_sort_random(Worker& w) {
  const Shape shapes[] = {{1}, {40}, {3, 17}, {17, 3}, {2, 0}, {2, 3, 9}};
  for (const int dtype : kNumbers) {
    for (const Shape& shape : shapes) {
      const auto dim = static_cast<int32_t>(w.seed % shape.size());
      for (int op = 0; op <= CHIPSET_SCAN_OP_LOGSUMEXP; ++op) {
        Case c = w.fresh();
        auto args = make<chipset_scan_args>();
        args.op = op;
        args.dim = dim;
        args.compute_dtype = dtype;
        args.input = c.tensor(dtype, shape, static_cast<Layout>(w.seed % kLayouts));
        args.output = c.tensor(dtype, shape);
        const bool indices = op == CHIPSET_SCAN_OP_MAX || op == CHIPSET_SCAN_OP_MIN;
        args.indices = indices ? c.tensor(CHIPSET_DTYPE_I64, shape) : nullptr;
        RUN(scan, c, args);
      }
      for (int kind = 0; kind < 4; ++kind) {
        Case c = w.fresh();
        auto args = make<chipset_sort_args>();
        args.dim = dim;
        args.descending = kind & 1;
        args.stable = kind >> 1;
        const int64_t size = shape[static_cast<size_t>(dim)];
        args.k = kind == 3 ? (size + 1) / 2 : size;
        Shape out = shape;
        out[static_cast<size_t>(dim)] = args.k;
        args.input = c.tensor(dtype, shape, static_cast<Layout>(w.seed % kLayouts));
        args.values = c.tensor(dtype, out);
        args.indices = c.tensor(CHIPSET_DTYPE_I64, out);
        RUN(sort, c, args);
      }
      for (int kind = 0; kind <= CHIPSET_RANDOM_KIND_RANDINT; ++kind) {
        Case c = w.fresh();
        auto args = make<chipset_random_args>();
        args.kind = kind;
        args.seed = 7;
        args.output = c.tensor(dtype, shape, static_cast<Layout>(w.seed % kRepeated));
        args.param[0] = scalar(kind == CHIPSET_RANDOM_KIND_EXPONENTIAL ? 2 : 0);
        args.param[1] = scalar(kind == CHIPSET_RANDOM_KIND_BERNOULLI ? 0.5 : 1);
        if (kind == CHIPSET_RANDOM_KIND_BERNOULLI) args.param[0] = scalar(0.5);
        RUN(random, c, args);
      }
    }
  }
}

struct Part {
  void (*run)(Worker&);
  std::initializer_list<const char*> functions;
};
const Part kParts[] = {
    {pointwise, {"pointwise"}},
    {reduce, {"reduce"}},
    {gemm, {"gemm"}},
    {gather_and_scatter, {"gather", "scatter"}},
    {attention, {"attention", "attention_backward"}},
    {attention_paged, {"attention_paged"}},
    {softmax_and_norm, {"softmax", "softmax_backward", "norm", "norm_backward"}},
    {rotary, {"rotary"}},
    {cross_entropy, {"cross_entropy", "cross_entropy_backward"}},
    {adamw, {"adamw"}},
    {quantized, {"quantize", "dequantize", "gemm_quantized"}},
    {scan_sort_random, {"scan", "sort", "random"}},
};

}  // namespace

int main(int argc, char** argv) {
  REQUIRE(argc >= 2);
  load(argv[1], argc > 2 ? argv[2] : nullptr);
  for (const Part& part : kParts) {
    for (const char* function : part.functions) counts()[function];
  }
  for (const Part& part : kParts) {
    const auto start = std::chrono::steady_clock::now();
    const auto work = [&](uint64_t seed) {
      Worker worker;
      worker.seed = seed;
      REQUIRE(api->stream_create(0, 0, &worker.stream) == CHIPSET_STATUS_OK);
      part.run(worker);
      REQUIRE(api->stream_destroy(worker.stream) == CHIPSET_STATUS_OK);
    };
    std::thread other(work, 1000000);
    work(0);
    other.join();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    for (const char* function : part.functions) {
      const Count& count = counts()[function];
      std::printf("%-24s %6d done, %5d declined\n", function, count.done.load(),
                  count.declined.load());
      REQUIRE(count.done > 0);
    }
    std::printf("  %.1f s\n", seconds.count());
  }
  return 0;
}
