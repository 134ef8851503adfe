// Conversions, for a caller that knows the right answers: `numbers decode|encode|encode64 DTYPE`
// turns codes on standard input into f32, or f32 (f64) into codes.
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <vector>

#include "check.hpp"

template <class From, class To>
void convert_all() {
  const std::string raw((std::istreambuf_iterator<char>(std::cin)),
                        std::istreambuf_iterator<char>());
  std::vector<From> in(raw.size() / sizeof(From));
  std::memcpy(static_cast<void*>(in.data()), raw.data(), raw.size());
  for (const From& value : in) {
    const To out = chipset::sdk::convert<To>(value);
    std::cout.write(reinterpret_cast<const char*>(&out), sizeof out);
  }
}

int main(int, char** arguments) {
  const std::string mode = arguments[1];
  chipset::sdk::dispatch(std::atoi(arguments[2]), [&](auto type) {
    using T = typename decltype(type)::type;
    if (mode == "decode")
      convert_all<T, float>();
    else if (mode == "encode")
      convert_all<float, T>();
    else
      convert_all<double, T>();
  });
}
