// SPDX-License-Identifier: Apache-2.0
// The launch options of the simulated chip, read once. docs/sim.md describes each.
#pragma once

#include <cstdint>
#include <string>

namespace chipset::sim {

enum class Mode { eager, latest, random };
enum class Severity { off, warning, fault };

// What a chip can do, for the timing model. Rates in units per second. The defaults are those of an
// imaginary chip; chipset_sim/chips holds real ones.
struct ChipModel {
  std::string name = "imaginary chip";
  double flops_f64 = 1e12, flops_f32 = 1e13, flops_f16 = 1e14, flops_f8 = 2e14, ops_i8 = 2e14;
  double memory_bandwidth = 1e12;
  double host_bandwidth = 2e10;
  double launch_seconds = 5e-6;  // of the device, for each kernel
  double submit_seconds = 2e-6;  // of the host, for each call
  double link_bandwidth = 1e11;  // one direction, all links of a device together
  double link_seconds = 2e-6;    // latency of a message
  std::string topology = "switch";
  std::uint32_t links = 1;  // of a device on a mesh, one to each peer
};

struct Config {
  std::int32_t devices = 1;
  std::uint64_t memory = std::uint64_t{2} << 30;
  Mode mode = Mode::latest;
  std::uint64_t seed = 0;
  bool workers = false;
  double delay_us = 0;
  std::uint32_t polls = 64;
  bool poison = true;
  bool leaks = true;
  bool stacks = true;
  Severity uninitialised = Severity::fault;
  Severity unrecorded = Severity::warning;
  std::string inject;
  std::string report;
  int exitcode = 0;
  std::uint32_t comm_timeout_ms = 600000;
  std::string cpu_library;
  ChipModel chip;
};

const Config& config();
// Reads the options; returns the first fault, or "".
std::string read_config();
const char* mode_name(Mode mode);
// "devices=2,mode=random,seed=7": CHIPSET_SIM for a run that repeats this one.
std::string replay_options();
// The same with the process's own command, as a shell takes it.
std::string replay_command();

}  // namespace chipset::sim
