// The dialect in OpenCL C. The host defines W (elements of a vector: 1 to 16), LANES (work-items of
// a group) and FP64 before it.
#if FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#pragma OPENCL FP_CONTRACT ON
#define KERNEL(name) __kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void name
#define FUNC static inline __attribute__((always_inline))
#define FUNC_ONCE static  // large: not worth copying into each place
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_ARRAY(type, name, count) __local type name[count]
#define RESTRICT restrict
#if LANES == 1  // nothing to wait for; PoCL takes a region apart at each barrier that it sees
#define BARRIER()
#else
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#endif
#define BARRIER_GLOBAL() barrier(CLK_GLOBAL_MEM_FENCE)  // the group sees what it wrote
#define LANE ((i32)get_local_id(0))
#define GROUP(d) get_group_id(d)
#define GROUPS(d) get_num_groups(d)

typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef float f32;
#if FP64
typedef double f64;
#endif

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#if W == 1
#define VEC(type) type
#define CONVERT(type, x) CAT(convert_, type)(x)
#define VAS(type, x) CAT(as_, type)(x)
#define VLOAD(p, i) ((p)[i])
#define VSTORE(v, p, i) ((p)[i] = (v))
#define VLOAD_HALF(p, i) vload_half(i, (const GLOBAL half*)(p))
#define VSTORE_HALF(v, p, i) vstore_half_rte(v, i, (GLOBAL half*)(p))
#define TRUE_MASK 1
#else
#define VEC(type) CAT(type, W)
#define CONVERT(type, x) CAT(CAT(convert_, type), W)(x)
#define VAS(type, x) CAT(CAT(as_, type), W)(x)
#define VLOAD(p, i) CAT(vload, W)(0, (p) + (i))
#define VSTORE(v, p, i) CAT(vstore, W)(v, 0, (p) + (i))
#define VLOAD_HALF(p, i) CAT(vload_half, W)(0, (const GLOBAL half*)(p) + (i))
#define VSTORE_HALF(v, p, i) CAT(CAT(vstore_half, W), _rte)(v, 0, (GLOBAL half*)(p) + (i))
#define TRUE_MASK -1
#endif
typedef VEC(float) vf;
typedef VEC(int) vi;
typedef VEC(long) vl;
typedef VEC(uint) vui;
typedef VEC(ulong) vul;
#define CV_f(x) CONVERT(float, x)
#define CV_i(x) CONVERT(int, x)
#define CV_l(x) CONVERT(long, x)
#define CV_ui(x) CONVERT(uint, x)
#define CV_ul(x) CONVERT(ulong, x)
#define CV_u16(x) CONVERT(ushort, x)
#define CV_u8(x) CONVERT(uchar, x)
#define CV_i8(x) CONVERT(char, x)
#define CV_i16(x) CONVERT(short, x)
#define AS_f(x) VAS(float, x)
#define AS_i(x) VAS(int, x)
#define AS_l(x) VAS(long, x)
#define AS_ui(x) VAS(uint, x)
#define AS_ul(x) VAS(ulong, x)
#if FP64
typedef VEC(double) vd;
#define CV_d(x) CONVERT(double, x)
#define AS_d(x) VAS(double, x)
#endif
// A comparison's result (of any class) as vi of 0 or 1.
#define TRUTH(x) (CONVERT(int, x) & 1)

FUNC f32 bits_f32(u32 x) { return as_float(x); }
FUNC u32 f32_bits(f32 x) { return as_uint(x); }
FUNC f32 half_to_f32(u16 h) { return vload_half(0, (const half*)&h); }
FUNC u16 f32_to_half(f32 x) {
  u16 h;
  vstore_half_rte(x, 0, (half*)&h);
  return h;
}
#if FP64
FUNC u16 f64_to_half(f64 x) {
  u16 h;
  vstore_half_rte(x, 0, (half*)&h);
  return h;
}
FUNC u64 f64_bits(f64 x) { return as_ulong(x); }
FUNC f64 bits_f64(u64 x) { return as_double(x); }
#endif
#define MUL_HIGH(a, b) mul_hi(a, b)  // of vui
// From NO_FUSED_PRODUCTS on, a PRODUCT is rounded before it is added to anything.
#define NO_FUSED_PRODUCTS _Pragma("OPENCL FP_CONTRACT OFF")
#define PRODUCT(a, b) ((a) * (b))
FUNC void raise_fault(GLOBAL i32* fault) { *fault = 1; }
