// The dialect in CUDA C++ (NVRTC) and HIP (hipRTC). The host defines W (1), LANES, FP64 and, for
// HIP, KIT_HIP before it. No header is needed, so that the compilers find all they need in here.
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(LANES) name
#define FUNC static __device__ __forceinline__
#define FUNC_ONCE static __device__
#define GLOBAL
#define LOCAL
#define LOCAL_ARRAY(type, name, count) __shared__ type name[count]
#define RESTRICT __restrict__
#define BARRIER() __syncthreads()
#define BARRIER_GLOBAL() __syncthreads()
#define LANE ((i32)threadIdx.x)
#define BLOCK_0 blockIdx.x
#define BLOCK_1 blockIdx.y
#define BLOCK_2 blockIdx.z
#define GRID_0 gridDim.x
#define GRID_1 gridDim.y
#define GRID_2 gridDim.z
#define GROUP(d) BLOCK_##d
#define GROUPS(d) GRID_##d

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define VLOAD(p, i) ((p)[i])
#define VSTORE(v, p, i) ((p)[i] = (v))
#define VLOAD_HALF(p, i) half_to_f32((p)[i])
#define VSTORE_HALF(v, p, i) ((p)[i] = to_half(v))
#define TRUE_MASK 1
typedef f32 vf;
typedef f64 vd;
typedef i32 vi;
typedef i64 vl;
typedef u32 vui;
typedef u64 vul;
#define CV_f(x) ((f32)(x))
#define CV_d(x) ((f64)(x))
#define CV_i(x) ((i32)(x))
#define CV_l(x) ((i64)(x))
#define CV_ui(x) ((u32)(x))
#define CV_ul(x) ((u64)(x))
#define CV_u16(x) ((u16)(x))
#define CV_u8(x) ((u8)(x))
#define CV_i8(x) ((i8)(x))
#define CV_i16(x) ((i16)(x))
FUNC f32 bits_f32(u32 x) { return __uint_as_float(x); }
FUNC u32 f32_bits(f32 x) { return __float_as_uint(x); }
FUNC u64 f64_bits(f64 x) { return (u64)__double_as_longlong(x); }
FUNC f64 bits_f64(u64 x) { return __longlong_as_double((i64)x); }
#define AS_f(x) bits_f32((u32)(x))
#define AS_d(x) bits_f64((u64)(x))
#define AS_i(x) as_i(x)
#define AS_ui(x) as_ui(x)
#define AS_l(x) as_l(x)
#define AS_ul(x) as_ul(x)
FUNC i64 as_l(f64 x) { return (i64)f64_bits(x); }
FUNC i64 as_l(u64 x) { return (i64)x; }
FUNC i64 as_l(i64 x) { return x; }
FUNC u64 as_ul(f64 x) { return f64_bits(x); }
FUNC u64 as_ul(i64 x) { return (u64)x; }
FUNC u64 as_ul(u64 x) { return x; }
FUNC i32 as_i(f32 x) { return (i32)f32_bits(x); }
FUNC i32 as_i(u32 x) { return (i32)x; }
FUNC i32 as_i(i32 x) { return x; }
FUNC u32 as_ui(f32 x) { return f32_bits(x); }
FUNC u32 as_ui(i32 x) { return (u32)x; }
FUNC u32 as_ui(u32 x) { return x; }
#define TRUTH(x) ((x) ? 1 : 0)

#ifdef KIT_HIP
FUNC f32 half_to_f32(u16 h) { return (f32) __builtin_bit_cast(_Float16, h); }
FUNC u16 f32_to_half(f32 x) { return __builtin_bit_cast(u16, (_Float16)x); }
FUNC u16 f64_to_half(f64 x) { return __builtin_bit_cast(u16, (_Float16)x); }
#else
FUNC f32 half_to_f32(u16 h) {
  f32 x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
FUNC u16 f32_to_half(f32 x) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
FUNC u16 f64_to_half(f64 x) {
  u16 h;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(h) : "d"(x));
  return h;
}
#endif
FUNC u16 to_half(f32 x) { return f32_to_half(x); }
FUNC u16 to_half(f64 x) { return f64_to_half(x); }
#define MUL_HIGH(a, b) __umulhi(a, b)
// A product that is rounded before it is added to anything.
#define NO_FUSED_PRODUCTS
#define PRODUCT(a, b) product(a, b)
#ifdef KIT_HIP
#define PRODUCT_OF(type, function)     \
  FUNC type product(type a, type b) {  \
    _Pragma("clang fp contract(off)"); \
    return a * b;                      \
  }
#else
#define PRODUCT_OF(type, function) \
  FUNC type product(type a, type b) { return function(a, b); }
#endif
PRODUCT_OF(f32, __fmul_rn)
PRODUCT_OF(f64, __dmul_rn)
FUNC void raise_fault(i32* fault) { *fault = 1; }
// OpenCL's names for what C++ calls otherwise.
FUNC f32 mad(f32 a, f32 b, f32 c) { return a * b + c; }
FUNC f64 mad(f64 a, f64 b, f64 c) { return a * b + c; }
FUNC i32 any(i32 x) { return x; }
#define INFINITY bits_f32(0x7f800000u)
#define NAN bits_f32(0x7fc00000u)
