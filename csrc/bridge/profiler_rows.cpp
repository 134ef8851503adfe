// SPDX-License-Identifier: Apache-2.0
// Device rows of torch.profiler (ProfilerActivity.PrivateUse1): each call of the waist between two
// events of its stream, linked to the operator that made it.
//
// While a profile is taken, the bridge's tables of functions are replaced by ones that time;
// without one nothing is in the way.
#define USE_KINETO  // torch was built with it
#define FMT_HEADER_ONLY
#include <GenericTraceActivity.h>
#include <IActivityProfiler.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "per_thread.h"
#include "state.h"

namespace chipset::bridge {
namespace {

using libkineto::ActivityType;

int64_t host_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

chipset_event timing_event(int device) {
  return guarded("profiler",
                 [&] { return runtime::acquire_event(device, CHIPSET_EVENT_FLAG_TIMING); });
}

// One call, from the event before it to the event after it.
struct Span {
  const char* name;
  int device;
  c10::StreamId stream;
  chipset_event begin, end;
  uint64_t correlation;  // of the operator that made the call; 0: none
};

void give_back(const Span& span) {
  runtime::release_event(span.device, CHIPSET_EVENT_FLAG_TIMING, span.begin);
  runtime::release_event(span.device, CHIPSET_EVENT_FLAG_TIMING, span.end);
}

// The same in the host's time.
struct Row {
  const char* name;
  int device;
  c10::StreamId stream;
  int64_t begin_ns, end_ns;
  uint64_t correlation;
};

// A point of a device's time and of the host's that are the same.
struct Origin {
  chipset_event event = nullptr;
  int64_t host_ns = 0;
};

// Operators that this thread is within, as the profiler numbers them.
struct Operators {
  std::vector<uint64_t> stack;
};
std::vector<uint64_t>& operators() { return runtime::per_thread<Operators>().stack; }

class Recorder {
 public:
  void start() {
    for (int device = 0; device < device_count(); ++device) {
      const chipset_api* api = runtime::device(device).api;
      if (api->event_elapsed == nullptr) continue;  // its events carry no time
      Origin& origin = origins_[device];
      origin.event = timing_event(device);
      check(api->event_record(origin.event, runtime::default_stream(device)), "event_record");
      check(api->event_query(origin.event, CHIPSET_WAIT_FOREVER), "event_query");
      origin.host_ns = host_now();
    }
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    settle();
    open_ = false;
    for (int device = 0; device < kMaxDevices; ++device) {
      if (origins_[device].event == nullptr) continue;
      runtime::release_event(device, CHIPSET_EVENT_FLAG_TIMING, origins_[device].event);
      origins_[device].event = nullptr;
    }
  }

  bool times(int device) const { return origins_[device].event != nullptr; }

  void add(const Span& span) {
    const std::lock_guard lock(mutex_);
    if (!open_) return give_back(span);
    spans_.push_back(span);
    if (spans_.size() >= kMostPending) settle();
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  static constexpr size_t kMostPending = 4096;

  // Turns spans into rows and gives their events back. Waits for them.
  void settle() {
    for (const Span& span : spans_) {
      const chipset_api* api = runtime::device(span.device).api;
      const Origin& origin = origins_[span.device];
      double begin = 0, end = 0;
      check(api->event_query(span.end, CHIPSET_WAIT_FOREVER), "event_query");
      check(api->event_elapsed(origin.event, span.begin, &begin), "event_elapsed");
      check(api->event_elapsed(origin.event, span.end, &end), "event_elapsed");
      const auto at = [&](double milliseconds) {
        return origin.host_ns + static_cast<int64_t>(milliseconds * 1e6);
      };
      rows_.push_back({span.name, span.device, span.stream, at(begin), at(end), span.correlation});
      give_back(span);
    }
    spans_.clear();
  }

  std::mutex mutex_;
  bool open_ = true;
  std::vector<Span> spans_;
  std::vector<Row> rows_;
  Origin origins_[kMaxDevices];
};

// ---- tables that time ------------------------------------------------------------------------

// Shared: a call of another thread may be on its way when the profile ends.
std::atomic<std::shared_ptr<Recorder>> recorder;

// The device of a call: the bridge makes each in the current stream of one.
int device_of(chipset_stream stream) {
  const ThreadState& state = thread_state();
  for (int device = 0; device < kMaxDevices; ++device) {
    if (state.streams[device].stream == stream) return device;
  }
  TORCH_INTERNAL_ASSERT(false, "a call in a stream that is not current");
}

template <auto Function, typename... Arguments>
chipset_status timed(Arguments... arguments) {
  const auto stream = std::get<chipset_stream>(std::tuple(arguments...));
  const int device = device_of(stream);
  const chipset_api* api = runtime::device(device).api;
  const std::shared_ptr<Recorder> to = recorder.load();
  if (to == nullptr || !to->times(device) || capturing()) return (api->*Function)(arguments...);

  Span span{function_name<Function>(),
            device,
            thread_state().streams[device].id,
            timing_event(device),
            timing_event(device),
            operators().empty() ? 0 : operators().back()};
  check(api->event_record(span.begin, stream), "event_record");
  const chipset_status status = (api->*Function)(arguments...);
  if (status == CHIPSET_STATUS_OK) {
    check(api->event_record(span.end, stream), "event_record");
    to->add(span);
  } else {
    give_back(span);
  }
  return status;
}

template <auto Function, typename... Arguments>
void time_slot(chipset_api& table, chipset_status (*)(Arguments...)) {
  constexpr bool enqueues = (std::is_same_v<Arguments, chipset_stream> || ...);
  if constexpr (enqueues) {
    if (table.*Function != nullptr) table.*Function = &timed<Function, Arguments...>;
  }
}

// Functions of these groups that take a stream are work; the others only order it.
constexpr std::string_view kTimedGroups[] = {"memory", "compute", "fused"};

chipset_api timing_table(const chipset_api& of) {
  chipset_api table = of;
#define CHIPSET_FUNCTION(name, required, group, since)                      \
  if (std::find(std::begin(kTimedGroups), std::end(kTimedGroups), group) != \
      std::end(kTimedGroups))                                               \
    time_slot<&chipset_api::name>(table, of.name);
#include <chipset/functions.inc>
  time_slot<&chipset_api::capture_replay>(table, of.capture_replay);
  return table;
}

// Devices of one plugin share a table, as without a profile.
void use_timing_tables() {
  static auto* tables =
      new std::map<const chipset_api*, chipset_api>();  // kept: calls may be in it
  for (int device = 0; device < device_count(); ++device) {
    const chipset_api* api = runtime::device(device).api;
    const auto found = tables->try_emplace(api, timing_table(*api)).first;
    __atomic_store_n(&device_api[device], &found->second, __ATOMIC_RELEASE);
  }
}

void use_plain_tables() {
  for (int device = 0; device < device_count(); ++device) {
    __atomic_store_n(&device_api[device], runtime::device(device).api, __ATOMIC_RELEASE);
  }
}

// ---- what the profiler of torch asks for -----------------------------------------------------

class Session final : public libkineto::IActivityProfilerSession {
 public:
  ~Session() override {
    if (status_ == libkineto::TraceStatus::RECORDING) stop();
  }
  void start() override {
    std::shared_ptr<Recorder> none;
    if (!recorder.compare_exchange_strong(none, recorder_)) {
      errors_.emplace_back("chip: another profile is being taken; this one has no device rows");
      status_ = libkineto::TraceStatus::ERROR;
      return;
    }
    recorder_->start();
    use_timing_tables();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    if (status_ != libkineto::TraceStatus::RECORDING) return;
    use_plain_tables();
    recorder.store(nullptr);
    recorder_->stop();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return errors_; }
  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, std::numeric_limits<int64_t>::max());
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t start, int64_t end) override {
    buffer_->span = libkineto::TraceSpan(start, end, "chip");
    buffer_->gpuOpCount = static_cast<int>(recorder_->rows().size());
    for (const Row& row : recorder_->rows()) {
      if (row.end_ns < start || row.begin_ns > end) continue;
      buffer_->emplace_activity(buffer_->span, ActivityType::CONCURRENT_KERNEL, row.name);
      libkineto::GenericTraceActivity& activity = *buffer_->activities.back();
      activity.startTime = row.begin_ns;
      activity.endTime = row.end_ns;
      activity.id = static_cast<int32_t>(row.correlation);
      activity.device = row.device;
      activity.resource = static_cast<int32_t>(row.stream);
      activity.threadId = libkineto::threadId();
      activity.linked = linked(activity.id);
      activity.flow.id = static_cast<uint32_t>(row.correlation);
      activity.flow.type = libkineto::kLinkAsyncCpuGpu;
      activity.addMetadata("device", row.device);
      activity.addMetadata("stream", row.stream);
      activity.log(logger);
    }
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }
  void pushCorrelationId(uint64_t id) override { operators().push_back(id); }
  void popCorrelationId() override {
    if (!operators().empty()) operators().pop_back();
  }

 private:
  std::shared_ptr<Recorder> recorder_ = std::make_shared<Recorder>();
  std::vector<std::string> errors_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ =
      std::make_unique<libkineto::CpuTraceBuffer>();
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return activities_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& wanted, const libkineto::Config&) override {
    if (wanted.count(ActivityType::CONCURRENT_KERNEL) == 0 || in_bad_fork()) return nullptr;
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& wanted,
      const libkineto::Config& config) override {
    return configure(wanted, config);
  }

 private:
  std::string name_ = "chip";
  std::set<ActivityType> activities_{ActivityType::CONCURRENT_KERNEL};
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

}  // namespace
}  // namespace chipset::bridge
