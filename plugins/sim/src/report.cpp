// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <vector>

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
thread_local std::string tag;

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
         ",\"replay\":" + json_string(replay_text()) + "}";
}

// Python's own C function for faulthandler; it needs neither the GIL nor memory.
std::string python_stack() {
  using Dump = void (*)(int, void*);
  using ThisThread = void* (*)();
  static const auto dump = reinterpret_cast<Dump>(dlsym(RTLD_DEFAULT, "_Py_DumpTraceback"));
  static const auto this_thread =
      reinterpret_cast<ThisThread>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  if (dump == nullptr || this_thread == nullptr) return "";
  void* state = this_thread();
  if (state == nullptr) return "";
  thread_local const int file = memfd_create("chipset-sim-stack", MFD_CLOEXEC);
  if (file < 0 || lseek(file, 0, SEEK_SET) != 0 || ftruncate(file, 0) != 0) return "";
  dump(file, state);
  char buffer[4096];
  const ssize_t n = pread(file, buffer, sizeof buffer, 0);
  std::string all(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
  const std::size_t first = all.find('\n');  // the heading
  return first == std::string::npos ? "" : all.substr(first + 1);
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
  std::fprintf(stderr, "sim: %s: %s [%s]\n", severity == Severity::fault ? "fault" : "warning",
               what.c_str(), replay_text().c_str());
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
  return fail(CHIPSET_STATUS_INVALID, what + " [" + replay_text() + "]");
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

void set_tag(const std::string& value) { tag = value; }

std::string caller() {
  std::string out = tag.empty() ? "" : "tag '" + tag + "'";
  if (!config().stacks) return out;
  const std::string stack = python_stack();
  if (!stack.empty()) out += (out.empty() ? "" : ", ") + std::string("at\n") + stack;
  return out;
}

}  // namespace chipset::sim
