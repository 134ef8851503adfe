// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <vector>

#include "common.h"

namespace chipset::sim {
namespace {

Config& the() {
  static auto* config = new Config;
  return *config;
}

const char* option(const char* name) {
  return g_host->option == nullptr ? nullptr : g_host->option(name);
}

bool read_number(const std::string& value, double* out, std::string* rest) {
  char* end = nullptr;
  errno = 0;
  *out = std::strtod(value.c_str(), &end);
  *rest = end;
  return end != value.c_str() && errno == 0 && std::isfinite(*out);
}

std::string read_plain(const std::string& value, double low, double high, double* out) {
  std::string rest;
  if (read_number(value, out, &rest) && rest.empty() && *out >= low && *out <= high) return "";
  return text("must be a number from ", low, " to ", high);
}

std::string read_bytes(const std::string& value, std::uint64_t* out) {
  constexpr struct {
    const char* unit;
    double factor;
  } kUnits[] = {{"", 1},     {"KiB", 1024.}, {"MiB", 1048576.}, {"GiB", 1073741824.},
                {"kB", 1e3}, {"MB", 1e6},    {"GB", 1e9}};
  double number = 0;
  std::string rest;
  if (read_number(value, &number, &rest) && number > 0)
    for (const auto& [unit, factor] : kUnits)
      if (rest == unit && number * factor < 1e15) {
        *out = static_cast<std::uint64_t>(number * factor);
        return "";
      }
  return "must be a size such as 512MiB or 2GiB";
}

std::string read_flag(const std::string& value, bool* out) {
  if (value != "0" && value != "1") return "must be 0 or 1";
  *out = value == "1";
  return "";
}

std::string read_severity(const std::string& value, Severity* out) {
  constexpr const char* kNames[] = {"off", "warning", "fault"};
  for (int i = 0; i < 3; ++i)
    if (value == kNames[i]) {
      *out = static_cast<Severity>(i);
      return "";
    }
  return "must be off, warning or fault";
}

std::string read_mode(const std::string& value, Mode* out) {
  for (Mode mode : {Mode::eager, Mode::latest, Mode::random})
    if (value == mode_name(mode)) {
      *out = mode;
      return "";
    }
  return "must be eager, latest or random";
}

struct Option {
  const char* name;
  std::function<std::string(const std::string&)> read;
};

std::vector<Option> options(Config& c) {
  const auto number = [](double* out, double low, double high) {
    return [=](const std::string& v) { return read_plain(v, low, high, out); };
  };
  const auto integer = [](auto* out, double low, double high) {
    return [=](const std::string& v) {
      double number = 0;
      std::string fault = read_plain(v, low, high, &number);
      if (fault.empty() && number != std::floor(number)) fault = "must be a whole number";
      if (fault.empty()) *out = static_cast<std::remove_pointer_t<decltype(out)>>(number);
      return fault;
    };
  };
  const auto flag = [](bool* out) {
    return [=](const std::string& v) { return read_flag(v, out); };
  };
  const auto severity = [](Severity* out) {
    return [=](const std::string& v) { return read_severity(v, out); };
  };
  const auto plain = [](std::string* out) {
    return [=](const std::string& v) {
      *out = v;
      return std::string();
    };
  };
  ChipModel& m = c.chip;
  return {
      {"devices", integer(&c.devices, 1, 16)},
      {"memory", [&c](const std::string& v) { return read_bytes(v, &c.memory); }},
      {"mode", [&c](const std::string& v) { return read_mode(v, &c.mode); }},
      {"seed", integer(&c.seed, 0, 9e15)},
      {"workers", flag(&c.workers)},
      {"delay_us", number(&c.delay_us, 0, 1e6)},
      {"polls", integer(&c.polls, 1, 1e6)},
      {"poison", flag(&c.poison)},
      {"leaks", flag(&c.leaks)},
      {"stacks", flag(&c.stacks)},
      {"uninitialised", severity(&c.uninitialised)},
      {"unrecorded", severity(&c.unrecorded)},
      {"inject", plain(&c.inject)},
      {"report", plain(&c.report)},
      {"exitcode", integer(&c.exitcode, 0, 255)},
      {"comm_timeout_ms", integer(&c.comm_timeout_ms, 1, 1e9)},
      {"cpu_library", plain(&c.cpu_library)},
      {"chip.name", plain(&m.name)},
      {"chip.flops_f64", number(&m.flops_f64, 0, 1e24)},
      {"chip.flops_f32", number(&m.flops_f32, 0, 1e24)},
      {"chip.flops_f16", number(&m.flops_f16, 0, 1e24)},
      {"chip.flops_f8", number(&m.flops_f8, 0, 1e24)},
      {"chip.ops_i8", number(&m.ops_i8, 0, 1e24)},
      {"chip.memory_bandwidth", number(&m.memory_bandwidth, 0, 1e24)},
      {"chip.host_bandwidth", number(&m.host_bandwidth, 0, 1e24)},
      {"chip.launch_seconds", number(&m.launch_seconds, 0, 1e3)},
      {"chip.submit_seconds", number(&m.submit_seconds, 0, 1e3)},
      {"chip.link_bandwidth", number(&m.link_bandwidth, 0, 1e24)},
      {"chip.link_seconds", number(&m.link_seconds, 0, 1e3)},
      {"chip.links", integer(&m.links, 1, 1024)},
      {"chip.topology",
       [&m](const std::string& v) {
         m.topology = v;
         const bool known = v == "ring" || v == "switch" || v == "mesh";
         return std::string(known ? "" : "must be ring, switch or mesh");
       }},
  };
}

// The text as one word of a shell.
std::string shell_word(const std::string& in) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_-./:=,@%+", c) != nullptr;
  };
  if (!in.empty() && std::all_of(in.begin(), in.end(), plain)) return in;
  std::string out = "'";
  for (char c : in) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string names_of(const std::vector<Option>& options) {
  std::string names;
  for (const Option& one : options) names += text(names.empty() ? "" : ", ", one.name);
  return names;
}

}  // namespace

const Config& config() { return the(); }

const char* mode_name(Mode mode) {
  return mode == Mode::eager ? "eager" : mode == Mode::latest ? "latest" : "random";
}

std::string read_config() {
  Config& c = the();
  // Without a seed every run differs; the reports tell how to repeat one.
  c.seed = std::random_device()() % 1000000;
  const std::vector<Option> all = options(c);
  const char* given = option("given");
  std::istringstream names(given == nullptr ? "" : given);
  for (std::string name; std::getline(names, name, ';');)
    if (std::none_of(all.begin(), all.end(), [&](const Option& o) { return name == o.name; }))
      return text("there is no option '", name, "'; there are ", names_of(all));
  for (const Option& known : all) {
    const char* value = option(known.name);
    if (value == nullptr) continue;
    const std::string fault = known.read(value);
    if (!fault.empty()) return text("option ", known.name, "=", value, " ", fault);
  }
  if (c.delay_us > 0 && !c.workers) return "option delay_us does nothing without workers=1";
  return "";
}

std::string replay_options() {
  const auto add = [](std::string& list, const std::string& name, const auto& value) {
    list += text(list.empty() ? "" : ",", name, "=", value);
  };
  // What the user wrote; a caller without the Python package has set options only.
  const char* source = option("source");
  std::string out = source == nullptr ? "" : source;
  if (source == nullptr)
    for (const Option& known : options(the()))
      if (const char* value = option(known.name); value != nullptr) add(out, known.name, value);
  if (option("mode") == nullptr) add(out, "mode", mode_name(config().mode));
  if (option("seed") == nullptr) add(out, "seed", config().seed);
  return out;
}

std::string replay_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string out = "CHIPSET_SIM=" + shell_word(replay_options());
  for (std::string word; std::getline(file, word, '\0');) out += " " + shell_word(word);
  return out;
}

}  // namespace chipset::sim
