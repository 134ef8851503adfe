// SPDX-License-Identifier: Apache-2.0
// CHIPSET_TRACE=file.json: every call as a span of Chrome's trace format (chrome://tracing,
// ui.perfetto.dev), with bytes touched and floating-point operations. A span is the host's time in
// the call; on an asynchronous device the work itself may run later.
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "watch.h"

namespace chipset::runtime {
namespace {

struct Trace {
  std::mutex mutex;
  std::FILE* file = nullptr;
  bool first = true;
  std::string path;
};

void write_head(Trace& t) {
  std::fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", t.file);
  t.first = true;
}

Trace& trace() {
  static Trace* the = [] {
    auto* t = new Trace;
    const char* path = std::getenv("CHIPSET_TRACE");
    if (path == nullptr || *path == 0) return t;
    t->path = path;
    t->file = std::fopen(path, "w");
    if (t->file == nullptr) {
      std::fprintf(stderr, "chipset: CHIPSET_TRACE: cannot write '%s'; no trace is made\n", path);
      return t;
    }
    write_head(*t);
    return t;
  }();
  return *the;
}

int thread_number() {
  static std::atomic<int> next{1};
  thread_local const int mine = next++;
  return mine;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 32)
      out += ' ';
    else
      out += c;
  }
  return out;
}

std::array<std::array<std::atomic<std::uint64_t>, kFunctionCount>, kMaxPlugins>& counts() {
  static auto* all =
      new std::array<std::array<std::atomic<std::uint64_t>, kFunctionCount>, kMaxPlugins>{};
  return *all;
}

std::atomic<int> plugins_counted{0};

}  // namespace

const Watch& watch() {
  static const Watch the{is_set("CHIPSET_CHECK"), trace().file != nullptr, recording()};
  return the;
}

bool tracing() { return trace().file != nullptr; }

double trace_now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void trace_span(const char* category, const char* name, double start, double end,
                const char* arguments_json) {
  Trace& t = trace();
  if (t.file == nullptr || retired()) return;
  const int thread = thread_number();
  std::lock_guard lock(t.mutex);
  std::fprintf(t.file,
               "%s{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,"
               "\"pid\":%d,\"tid\":%d,\"args\":%s}",
               t.first ? "" : ",\n", escaped(name).c_str(), escaped(category).c_str(), start,
               end - start, static_cast<int>(getpid()), thread,
               arguments_json == nullptr ? "{}" : arguments_json);
  t.first = false;
}

void trace_call(const Plugin& plugin, Fn function, double start, double end, chipset_stream stream,
                const Operands& operands, double flops, chipset_status status) {
  std::uint64_t bytes = 0;
  std::string shapes;
  for (const Operand& o : operands) {
    const std::uint64_t own =
        o.tensor == nullptr
            ? o.bytes
            : (static_cast<std::uint64_t>(element_count(*o.tensor)) * dtype_bits(o.tensor->dtype) +
               7) /
                  8;
    bytes += own * (o.access == Access::update ? 2 : 1);
    if (o.tensor == nullptr || shapes.size() >= 256) continue;
    if (!shapes.empty()) shapes += ' ';
    shapes.append(o.name).append(1, '=').append(text_of(*o.tensor));
  }
  char arguments[640];
  std::snprintf(arguments, sizeof arguments,
                "{\"stream\":\"%p\",\"bytes\":%llu,\"flops\":%.0f,\"status\":\"%s\","
                "\"operands\":\"%s\"}",
                static_cast<void*>(stream), static_cast<unsigned long long>(bytes), flops,
                status_name(status), shapes.c_str());
  trace_span(plugin.spec.name.c_str(), function_name(function), start, end, arguments);
}

void count_composed(const Plugin& plugin, Fn function) {
  counts()[static_cast<std::size_t>(plugin.slot)][static_cast<std::size_t>(function)].fetch_add(
      1, std::memory_order_relaxed);
  int seen = plugins_counted.load();
  while (seen <= plugin.slot && !plugins_counted.compare_exchange_weak(seen, plugin.slot + 1)) {
  }
}

std::map<std::string, std::uint64_t> composed_counts() {
  std::map<std::string, std::uint64_t> out;
  for (int slot = 0; slot < plugins_counted.load(); ++slot)
    for (int f = 0; f < kFunctionCount; ++f) {
      const std::uint64_t n =
          counts()[static_cast<std::size_t>(slot)][static_cast<std::size_t>(f)].load();
      if (n != 0) out[plugin_at(slot).spec.name + "." + function_name(static_cast<Fn>(f))] = n;
    }
  return out;
}

void reset_composed_counts() {
  for (auto& plugin : counts())
    for (auto& count : plugin) count.store(0);
}

void flush() {
  flush_record();
  Trace& t = trace();
  if (t.file == nullptr || in_bad_fork()) return;
  std::lock_guard lock(t.mutex);
  // The end is written each time and overwritten by the next span, so that the file is whole.
  const long end = std::ftell(t.file);
  std::fputs("\n]}\n", t.file);
  std::fflush(t.file);
  std::fseek(t.file, end, SEEK_SET);
}

}  // namespace chipset::runtime
