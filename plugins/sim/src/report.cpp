// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <vector>

#include "caller.h"

namespace chipset::sim {

const chipset_host* g_host = nullptr;

namespace {

struct Finding {
  Severity severity;
  std::string text;
};
struct Findings {
  std::mutex mutex;
  std::vector<Finding> all;
};
Findings& findings() {
  static auto* the = new Findings;
  return *the;
}

std::atomic<std::uint64_t> call_count{0};
struct Label {
  std::string value;
};
std::string& tag() { return runtime::per_thread<Label>().value; }

constexpr const char* kNames[] = {
#define CHIPSET_FUNCTION(name, required, group, since) #name,
#include "chipset/functions.inc"
    "no call"};

std::string json_string(const std::string& in) {
  std::string out = "\"";
  for (char c : in) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string json_of(const Finding& f) {
  const std::string rule = f.text.substr(0, f.text.find(':'));
  return "{\"severity\":\"" + std::string(f.severity == Severity::fault ? "fault" : "warning") +
         "\",\"rule\":" + json_string(rule) + ",\"text\":" + json_string(f.text) +
         ",\"replay\":" + json_string(replay_command()) + "}";
}

}  // namespace

const char* name_of(Fn function) { return kNames[static_cast<int>(function)]; }

Call& current_call() {
  thread_local Call call;
  return call;
}
std::uint64_t calls_made() { return call_count.load(std::memory_order_relaxed); }
std::uint64_t next_call_number() { return call_count.fetch_add(1) + 1; }
std::string text_of(const Call& call) {
  return text(name_of(call.function), " (call ", call.number, ")");
}

chipset_status fail(chipset_status status, const std::string& what) {
  if (g_host->set_error != nullptr) g_host->set_error(("sim: " + what).c_str());
  return status;
}

void note(Severity severity, const std::string& what) {
  if (severity == Severity::off) return;
  const Finding finding{severity, what};
  {
    std::lock_guard lock(findings().mutex);
    findings().all.push_back(finding);
  }
  // A program given to python -c may be long; the findings and the report have it whole.
  constexpr std::size_t kMostShown = 400;
  std::string replay = replay_command();
  if (replay.size() > kMostShown) replay = text("the same command with ", replay_options());
  std::fprintf(stderr, "sim: %s: %s\n  replay: %s\n",
               severity == Severity::fault ? "fault" : "warning", what.c_str(), replay.c_str());
  if (config().report.empty()) return;
  std::FILE* file = std::fopen(config().report.c_str(), "a");
  if (file == nullptr) {
    std::fprintf(stderr, "sim: option report: cannot write '%s'\n", config().report.c_str());
    return;
  }
  std::fprintf(file, "%s\n", json_of(finding).c_str());
  std::fclose(file);
}

chipset_status fault(const std::string& what) {
  note(Severity::fault, what);
  return fail(CHIPSET_STATUS_INVALID, what + " [CHIPSET_SIM=" + replay_options() + "]");
}

// What the checked layer refused never reaches the table; it is a finding like any other.
extern "C" CHIPSET_EXPORT chipset_status chipset_plugin_refused(const char* fault_text) {
  return fault(fault_text);
}

std::string findings_json() {
  std::lock_guard lock(findings().mutex);
  std::string out = "[";
  for (const Finding& f : findings().all) out += (out.size() > 1 ? "," : "") + json_of(f);
  return out + "]";
}
std::size_t finding_count() {
  std::lock_guard lock(findings().mutex);
  return findings().all.size();
}
void clear_findings() {
  std::lock_guard lock(findings().mutex);
  findings().all.clear();
}

void set_tag(const std::string& value) { tag() = value; }

std::string caller() {
  std::string out = tag().empty() ? "" : "tag '" + tag() + "'";
  if (!config().stacks) return out;
  const std::string stack = runtime::python_frames();
  if (!stack.empty()) out += (out.empty() ? "" : ", ") + std::string("at\n") + stack;
  return out;
}

}  // namespace chipset::sim
