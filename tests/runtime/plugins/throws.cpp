// What no function of a plugin may do (ERR-001), and C cannot.
#include <stdexcept>

extern "C" void toy_throw(const char* what) {
  if (what == nullptr) throw 7;
  throw std::runtime_error(what);
}
