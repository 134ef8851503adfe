// SPDX-License-Identifier: Apache-2.0
#include "inject.h"

#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include "config.h"

namespace chipset::sim {
namespace {

struct Kind {
  const char* name;
  chipset_status status;
  Deferred deferred;
};
constexpr Kind kKinds[] = {
    {"INVALID", CHIPSET_STATUS_INVALID, Deferred::none},
    {"UNSUPPORTED", CHIPSET_STATUS_UNSUPPORTED, Deferred::none},
    {"OUT_OF_MEMORY", CHIPSET_STATUS_OUT_OF_MEMORY, Deferred::none},
    {"DEVICE_LOST", CHIPSET_STATUS_DEVICE_LOST, Deferred::none},
    {"TIMEOUT", CHIPSET_STATUS_TIMEOUT, Deferred::none},
    {"INTERNAL", CHIPSET_STATUS_INTERNAL, Deferred::none},
    {"ASYNC_LOST", CHIPSET_STATUS_OK, Deferred::lost},
    {"STUCK", CHIPSET_STATUS_OK, Deferred::stuck},
    {"BITFLIP", CHIPSET_STATUS_OK, Deferred::bitflip},
    {"OVERRUN", CHIPSET_STATUS_OK, Deferred::overrun},
    {"SLOW", CHIPSET_STATUS_OK, Deferred::slow},
};

struct Rule {
  std::string text;
  Fn function = Fn::kCount;  // kCount: any
  std::int32_t device = -1;  // -1: any
  std::uint64_t first = 0;   // 0: by probability
  bool onwards = false;
  double probability = 0;
  Kind kind{};
  std::uint64_t seen = 0;
};

struct Rules {
  std::mutex mutex;
  std::vector<Rule> all;
  std::mt19937_64 random;
  std::uint64_t fired = 0;
};
Rules& rules() {
  static auto* the = new Rules;
  return *the;
}
thread_local Deferred deferred = Deferred::none;

std::optional<Fn> function_called(const std::string& name) {
  if (name == "*") return Fn::kCount;
  for (int f = 0; f < static_cast<int>(Fn::kCount); ++f)
    if (name == name_of(static_cast<Fn>(f))) return static_cast<Fn>(f);
  return std::nullopt;
}

// "" or what is wrong.
std::string read_rule(const std::string& given, Rule* rule) {
  const auto fault = [&](const auto&... parts) {
    return text("injection '", given, "': ", parts...,
                "; a rule is FUNCTION[@DEVICE]:WHEN=KIND, such as mem_alloc:3=OUT_OF_MEMORY");
  };
  const std::size_t equals = given.find('=');
  const std::size_t colon = given.find(':');
  if (equals == std::string::npos || colon == std::string::npos || colon > equals)
    return fault("it has no ':' before a '='");
  std::string name = given.substr(0, colon);
  if (const std::size_t at = name.find('@'); at != std::string::npos) {
    char* end = nullptr;
    rule->device = static_cast<std::int32_t>(std::strtol(name.c_str() + at + 1, &end, 10));
    if (*end != 0 || rule->device < 0) return fault("the device is no number");
    name.erase(at);
  }
  const std::optional<Fn> function = function_called(name);
  if (!function) return fault("the interface has no function '", name, "'");
  rule->function = *function;
  std::string when = given.substr(colon + 1, equals - colon - 1);
  char* end = nullptr;
  if (when.starts_with("p")) {
    rule->probability = std::strtod(when.c_str() + 1, &end);
    if (*end != 0 || !(rule->probability > 0 && rule->probability <= 1))
      return fault("'", when, "' is no probability");
  } else {
    rule->onwards = when.ends_with("+");
    if (rule->onwards) when.pop_back();
    rule->first = std::strtoull(when.c_str(), &end, 10);
    if (when.empty() || *end != 0 || rule->first == 0)
      return fault("'", when, "' is no number of a call (they count from 1)");
  }
  const std::string kind = given.substr(equals + 1);
  for (const Kind& known : kKinds)
    if (kind == known.name) {
      rule->kind = known;
      rule->text = given;
      return "";
    }
  return fault("'", kind, "' is no kind");
}

bool fires(Rule& rule, std::mt19937_64& random) {
  ++rule.seen;
  if (rule.first == 0)
    return std::uniform_real_distribution<double>(0, 1)(random) < rule.probability;
  return rule.onwards ? rule.seen >= rule.first : rule.seen == rule.first;
}

}  // namespace

std::string add_rules(const std::string& list) {
  std::vector<Rule> added;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ';');) {
    if (part.empty()) continue;
    Rule rule;
    const std::string fault = read_rule(part, &rule);
    if (!fault.empty()) return fault;
    added.push_back(rule);
  }
  Rules& r = rules();
  std::lock_guard lock(r.mutex);
  if (r.all.empty()) r.random.seed(config().seed);
  r.all.insert(r.all.end(), added.begin(), added.end());
  return "";
}

void clear_rules() {
  std::lock_guard lock(rules().mutex);
  rules().all.clear();
  rules().fired = 0;
}

Injection injection_for(Fn function, std::int32_t device) {
  Rules& r = rules();
  std::lock_guard lock(r.mutex);
  Injection out;
  for (Rule& rule : r.all) {
    if (rule.function != Fn::kCount && rule.function != function) continue;
    if (rule.device >= 0 && rule.device != device) continue;
    if (!fires(rule, r.random) || !out.rule.empty()) continue;
    out = {rule.kind.status, rule.kind.deferred, rule.text};
    ++r.fired;
  }
  return out;
}

std::uint64_t injections_made() {
  std::lock_guard lock(rules().mutex);
  return rules().fired;
}

Deferred take_deferred() { return std::exchange(deferred, Deferred::none); }
void set_deferred(Deferred value) { deferred = value; }

}  // namespace chipset::sim
