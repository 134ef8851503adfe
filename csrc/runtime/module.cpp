// SPDX-License-Identifier: Apache-2.0
// chipset._runtime: the runtime for Python, without torch. Tables are handed over as addresses;
// chipset.driver calls them through ctypes.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "runtime.h"

namespace py = pybind11;
namespace rt = chipset::runtime;

namespace {

using Address = std::uintptr_t;

chipset_stream stream_at(Address address) { return reinterpret_cast<chipset_stream>(address); }
void* pointer_at(Address address) { return reinterpret_cast<void*>(address); }
Address address_of(const void* pointer) { return reinterpret_cast<Address>(pointer); }

py::dict info_dict(const chipset_device_info& info) {
  py::dict out;
  out["name"] = std::string(info.name);
  out["vendor"] = std::string(info.vendor);
  out["architecture"] = std::string(info.architecture);
  out["driver"] = std::string(info.driver);
  out["compute_units"] = info.compute_units;
  out["capabilities"] = info.capabilities;
  out["total_memory"] = info.total_memory;
  out["max_allocation"] = info.max_allocation;
  out["dtypes"] = info.dtypes;
  out["alignment"] = info.alignment;
  out["preferred_vector_bytes"] = info.preferred_vector_bytes;
  return out;
}

using Options = std::map<std::string, std::string>;
using SpecTuple = std::tuple<std::string, std::string, Options>;

rt::PluginSpec spec_of(const SpecTuple& t) {
  return {std::get<0>(t), std::get<1>(t), std::get<2>(t)};
}

py::dict probe(const SpecTuple& spec) {
  rt::Probe found;
  {
    py::gil_scoped_release release;
    found = rt::probe(spec_of(spec));
  }
  py::dict out;
  out["available"] = found.available;
  out["reason"] = found.reason;
  out["version"] = found.version;
  out["build_info"] = found.build_info;
  out["major"] = found.major;
  out["minor"] = found.minor;
  py::list devices;
  for (const auto& info : found.devices) devices.append(info_dict(info));
  out["devices"] = devices;
  return out;
}

py::dict device(int index) {
  const rt::Device& d = rt::device(index);
  py::dict out = info_dict(d.info);
  out["index"] = d.index;
  out["local"] = d.local;
  out["plugin"] = d.plugin;
  out["version"] = std::string(d.api->version);
  return out;
}

void put_stat(py::dict& out, const char* name, const rt::Stat (&stat)[3]) {
  static const char* const kPools[] = {"all", "small_pool", "large_pool"};
  for (int i = 0; i < 3; ++i) {
    const std::string prefix = std::string(name) + "." + kPools[i] + ".";
    out[py::str(prefix + "current")] = stat[i].current;
    out[py::str(prefix + "peak")] = stat[i].peak;
    out[py::str(prefix + "allocated")] = stat[i].allocated;
    out[py::str(prefix + "freed")] = stat[i].freed;
  }
}

py::dict memory_stats(int index) {
  const rt::MemoryStats s = rt::memory_stats(index);
  py::dict out;
  put_stat(out, "allocation", s.allocation);
  put_stat(out, "segment", s.segment);
  put_stat(out, "active", s.active);
  put_stat(out, "inactive_split", s.inactive_split);
  put_stat(out, "allocated_bytes", s.allocated_bytes);
  put_stat(out, "reserved_bytes", s.reserved_bytes);
  put_stat(out, "active_bytes", s.active_bytes);
  put_stat(out, "inactive_split_bytes", s.inactive_split_bytes);
  put_stat(out, "requested_bytes", s.requested_bytes);
  out["num_alloc_retries"] = s.num_alloc_retries;
  out["num_ooms"] = s.num_ooms;
  out["num_sync_all_streams"] = s.num_sync_all_streams;
  out["num_device_alloc"] = s.num_device_alloc;
  out["num_device_free"] = s.num_device_free;
  return out;
}

}  // namespace

PYBIND11_MODULE(_runtime, m) {
  m.doc() = "The Chipset runtime: plugins, devices, memory, streams; without torch.";

  static PyObject* error_type =
      PyErr_NewException("chipset._runtime.Error", PyExc_RuntimeError, nullptr);
  m.add_object("Error", py::reinterpret_borrow<py::object>(error_type));
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const rt::Error& error) {
      py::object value =
          py::reinterpret_steal<py::object>(PyObject_CallFunction(error_type, "s", error.what()));
      value.attr("status") = static_cast<int>(error.status);
      PyErr_SetObject(error_type, value.ptr());
    }
  });

  using Release = py::call_guard<py::gil_scoped_release>;
  m.def("probe", &probe, "Tries a plugin (name, library, options) in a child process.");
  m.def(
      "launch",
      [](const std::vector<SpecTuple>& specs) {
        std::vector<rt::PluginSpec> plugins;
        for (const auto& spec : specs) plugins.push_back(spec_of(spec));
        rt::launch(plugins);
      },
      Release());
  m.def("device_count", &rt::device_count);
  m.def("device", &device);
  m.def("find_device", &rt::find_device);
  m.def(
      "api_address", [](int index) { return address_of(rt::device(index).api); },
      "Address of the device's chipset_api.");
  m.def("in_bad_fork", &rt::in_bad_fork);
  m.def("take_error", &rt::take_error);
  m.def("status_name", &rt::status_name);
  m.def(
      "check", [](int status, const std::string& function) { rt::check(status, function.c_str()); },
      "Raises Error unless the status is OK.");

  m.def(
      "allocate",
      [](int device, std::size_t bytes, Address stream) {
        return address_of(rt::allocate(device, bytes, stream_at(stream)));
      },
      Release());
  m.def("deallocate", [](Address p) { rt::deallocate(pointer_at(p)); }, Release());
  m.def("record_stream",
        [](Address p, Address stream) { rt::record_stream(pointer_at(p), stream_at(stream)); });
  m.def("block_size", [](Address p) { return rt::block_size(pointer_at(p)); });
  m.def("owner_of", [](Address p) { return rt::owner_of(pointer_at(p)); });
  m.def("empty_cache", &rt::empty_cache, Release());
  m.def("begin_private_pool", &rt::begin_private_pool);
  m.def("end_private_pool", &rt::end_private_pool);
  m.def("release_private_pool", &rt::release_private_pool);
  m.def("memory_stats", &memory_stats);
  m.def("reset_peak_memory_stats", &rt::reset_peak_memory_stats);
  m.def("reset_accumulated_memory_stats", &rt::reset_accumulated_memory_stats);
  m.def("memory_map", &rt::memory_map);

  m.def(
      "allocate_host",
      [](int device, std::size_t bytes) { return address_of(rt::allocate_host(device, bytes)); },
      Release());
  m.def("deallocate_host", [](Address p) { rt::deallocate_host(pointer_at(p)); }, Release());
  m.def("record_host", [](Address p, Address stream) {
    return rt::record_host(pointer_at(p), stream_at(stream));
  });
  m.def("is_pinned", [](Address p) { return rt::is_pinned(pointer_at(p)); });
  m.def("empty_host_cache", &rt::empty_host_cache, Release());

  m.def("default_stream", [](int device) { return address_of(rt::default_stream(device)); });
  m.def("pool_stream", [](int device, int priority, int i) {
    return address_of(rt::pool_stream(device, priority, i));
  });

  m.def("composed_counts", &rt::composed_counts);
  m.def("reset_composed_counts", &rt::reset_composed_counts);
  m.def("tracing", &rt::tracing);
  m.def("flush", &rt::flush, Release());
}
