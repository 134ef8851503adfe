// SPDX-License-Identifier: Apache-2.0
#include "softmax.h"

#include "check.h"
#include "dispatch.h"
#include "functions.h"

namespace chipset::cpu {
namespace {

chipset_status check_dim(const char* function, const chipset_softmax_args& s) {
  const int rank = s.input->rank;
  if (s.dim >= 0 && (s.dim < rank || (rank == 0 && s.dim == 0))) return CHIPSET_STATUS_OK;
  return fail(CHIPSET_STATUS_INVALID, "%s: dim %d of an input of shape %s; need 0 to %d", function,
              s.dim, shape_text(*s.input), rank - 1);
}

}  // namespace

chipset_status cpu_softmax(chipset_stream, const chipset_softmax_args* args) {
  const chipset_softmax_args& s = *args;
  RETURN_UNLESS_OK(check_floats("softmax", "input", s.input));
  RETURN_UNLESS_OK(check_like("softmax", "output", s.output, "input", *s.input));
  RETURN_UNLESS_OK(check_output("softmax", "output", s.output));
  RETURN_UNLESS_OK(check_dim("softmax", s));
  const Rows rows = make_rows(s.input, s.output, nullptr, s.dim);
  if (rows.count == 0 || rows.size == 0) return CHIPSET_STATUS_OK;
  const bool ok = CPU_SELECT(softmax_kernels).forward(rows, s.log != 0);
  return ok ? CHIPSET_STATUS_OK : no_memory("softmax");
}

chipset_status cpu_softmax_backward(chipset_stream, const chipset_softmax_args* args) {
  const chipset_softmax_args& s = *args;
  RETURN_UNLESS_OK(check_floats("softmax_backward", "input", s.input));
  RETURN_UNLESS_OK(check_like("softmax_backward", "result", s.result, "input", *s.input));
  RETURN_UNLESS_OK(check_like("softmax_backward", "output", s.output, "input", *s.input));
  RETURN_UNLESS_OK(check_output("softmax_backward", "output", s.output));
  RETURN_UNLESS_OK(check_dim("softmax_backward", s));
  const Rows rows = make_rows(s.input, s.result, s.output, s.dim);
  if (rows.count == 0 || rows.size == 0) return CHIPSET_STATUS_OK;
  const bool ok = CPU_SELECT(softmax_kernels).backward(rows, s.log != 0);
  return ok ? CHIPSET_STATUS_OK : no_memory("softmax_backward");
}

}  // namespace chipset::cpu
