// SPDX-License-Identifier: Apache-2.0
// What chipset_sim's Python functions ask of the running chip.
#include "config.h"
#include "functions.h"
#include "inject.h"

namespace chipset::sim {
namespace {

std::string live_json() {
  Lock lock(simulator_mutex());
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  std::size_t count = 0;
  for (const Allocation* a : live_allocations()) {
    ++count;
    (a->kind == CHIPSET_MEMORY_KIND_HOST ? host : device) += a->bytes;
  }
  return text("{\"allocations\":", count, ",\"device_bytes\":", device, ",\"host_bytes\":", host,
              ",", handles_text(), "}");
}

std::string answer(const std::string& command, const std::string& rest) {
  if (command == "findings") return findings_json();
  if (command == "clear") return clear_findings(), "";
  if (command == "inject") return add_rules(rest);
  if (command == "inject_clear") return clear_rules(), "";
  if (command == "injections") return std::to_string(injections_made());
  if (command == "time") return text(std::scientific, virtual_seconds());
  if (command == "time_reset") {
    Lock lock(simulator_mutex());
    return reset_virtual_time(), "";
  }
  if (command == "calls") return std::to_string(calls_made());
  if (command == "live") return live_json();
  if (command == "tag") return set_tag(rest), "";
  if (command == "replay") return replay_options();
  return "unknown command " + command;
}

}  // namespace
}  // namespace chipset::sim

// One command, its argument after the first space. The answer is valid until the thread's next one.
extern "C" CHIPSET_EXPORT const char* chipset_sim_control(const char* line) {
  struct Reply {
    std::string text;
  };
  std::string& out = chipset::runtime::per_thread<Reply>().text;
  if (chipset::sim::g_host == nullptr) return "not launched";
  const std::string all = line;
  const std::size_t space = all.find(' ');
  out = chipset::sim::answer(all.substr(0, space),
                             space == std::string::npos ? "" : all.substr(space + 1));
  return out.c_str();
}
