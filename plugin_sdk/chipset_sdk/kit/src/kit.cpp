// SPDX-License-Identifier: Apache-2.0
// Programs: their text, their binaries in memory and on disk.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>

#include "source.h"

namespace chipset::kit {

struct Embedded {
  std::string_view name, text;
};
extern const Embedded kEmbedded[];
extern const int kEmbeddedCount;

std::string_view embedded(std::string_view name) {
  for (int i = 0; i < kEmbeddedCount; ++i)
    if (kEmbedded[i].name == name) return kEmbedded[i].text;
  fail(CHIPSET_STATUS_INTERNAL, "the kit has no source '%s'", std::string(name).c_str());
}

namespace {
struct DtypeInDialect {
  int32_t dtype;
  const char* name;
  char held;
};
constexpr DtypeInDialect kDtypes[] = {
    {CHIPSET_DTYPE_BOOL, "bool", 'i'},     {CHIPSET_DTYPE_U8, "u8", 'i'},
    {CHIPSET_DTYPE_I8, "i8", 'i'},         {CHIPSET_DTYPE_I16, "i16", 'i'},
    {CHIPSET_DTYPE_I32, "i32", 'i'},       {CHIPSET_DTYPE_I64, "i64", 'l'},
    {CHIPSET_DTYPE_F16, "f16", 'f'},       {CHIPSET_DTYPE_BF16, "bf16", 'f'},
    {CHIPSET_DTYPE_F32, "f32", 'f'},       {CHIPSET_DTYPE_F64, "f64", 'd'},
    {CHIPSET_DTYPE_F8E4M3, "f8e4m3", 'f'}, {CHIPSET_DTYPE_F8E5M2, "f8e5m2", 'f'},
};
const DtypeInDialect& in_dialect(int32_t dtype) {
  for (const DtypeInDialect& entry : kDtypes)
    if (entry.dtype == dtype) return entry;
  unsupported(std::string("computing with ") + sdk::dtype_name(dtype));
}
}  // namespace

const char* dialect_name(int32_t dtype) { return in_dialect(dtype).name; }
char dialect_class(int32_t dtype) { return in_dialect(dtype).held; }

Source::Source(const Traits& traits, int width, int lanes) {
  define("W", width).define("LANES", lanes).define("FP64", traits.fp64 ? 1 : 0);
  if (traits.language == Language::kHip) define("KIT_HIP", 1);
  file(traits.language == Language::kOpenCL ? "prelude_opencl.h" : "prelude_cuda.h");
  file("dialect.h");
}
Source& Source::define(const char* name, std::string_view value) {
  text_.append("#define ").append(name).append(" ").append(value).append("\n");
  return *this;
}
Source& Source::operand(const char* name, int32_t dtype) {
  const DtypeInDialect& entry = in_dialect(dtype);
  if ((dtypes_ >> dtype & 1) == 0) text_.append("ACCESS(").append(entry.name).append(")\n");
  dtypes_ |= 1u << dtype;
  return define(name, entry.name);
}
Source& Source::text(std::string_view text) {
  text_.append(text).append("\n");
  return *this;
}

// ---- binaries on disk ----

std::string default_cache_folder() {
  if (const char* chosen = std::getenv("CHIPSET_KERNEL_CACHE"))
    return std::strcmp(chosen, "off") == 0 ? "" : chosen;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::string(cache) + "/chipset/kernels";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? std::string(home) + "/.cache/chipset/kernels" : "";
}

namespace {
uint64_t hash_bytes(const void* data, std::size_t size, uint64_t hash) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash ^ hash >> 32;
}
constexpr uint64_t kSeed = 1469598103934665603u;

// A file: this, the text of the identity and the source (against collisions), the binary.
struct Header {
  char magic[8] = {'C', 'H', 'I', 'P', 'K', 'I', 'T', '1'};
  uint64_t key_bytes = 0, binary_bytes = 0, checksum = 0;
};

std::filesystem::path path_of(const Traits& traits, const std::string& key) {
  char name[40];
  std::snprintf(name, sizeof name, "%016llx%08llx.bin",
                static_cast<unsigned long long>(hash_bytes(key.data(), key.size(), kSeed)),
                static_cast<unsigned long long>(hash_bytes(key.data(), key.size(), 77) >> 32));
  return std::filesystem::path(traits.cache_folder) / name;
}

}  // namespace

Binary read_cached(const Traits& traits, const std::string& key) {
  if (traits.cache_folder.empty()) return {};
  std::ifstream file(path_of(traits, key), std::ios::binary);
  std::string all{std::istreambuf_iterator<char>(file), {}};
  Header header;
  if (all.size() < sizeof header) return {};
  std::memcpy(&header, all.data(), sizeof header);
  if (std::memcmp(header.magic, Header{}.magic, sizeof header.magic) != 0 ||
      header.key_bytes != key.size() ||
      header.binary_bytes != all.size() - sizeof header - key.size() ||
      all.compare(sizeof header, key.size(), key) != 0)
    return {};
  const char* binary = all.data() + sizeof header + key.size();
  if (hash_bytes(binary, header.binary_bytes, kSeed) != header.checksum) return {};
  return Binary(binary, binary + header.binary_bytes);
}

// To a file of its own, then renamed: two processes may write one name at once, and a reader sees a
// whole file or none. A folder that cannot be written to costs compilations, not the call.
void write_cached(const Traits& traits, const std::string& key, const Binary& binary) {
  if (traits.cache_folder.empty()) return;
  static std::atomic<uint64_t> serial{0};
  std::error_code error;
  const std::filesystem::path path = path_of(traits, key);
  std::filesystem::create_directories(path.parent_path(), error);
  const std::filesystem::path temporary =
      path.string() + "." + std::to_string(::getpid()) + "." + std::to_string(serial++);
  Header header;
  header.key_bytes = key.size();
  header.binary_bytes = binary.size();
  header.checksum = hash_bytes(binary.data(), binary.size(), kSeed);
  bool whole = false;
  {
    std::ofstream file(temporary, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(key.data(), static_cast<std::streamsize>(key.size()));
    file.write(reinterpret_cast<const char*>(binary.data()),
               static_cast<std::streamsize>(binary.size()));
    file.close();
    whole = file.good();
  }
  if (whole) std::filesystem::rename(temporary, path, error);
  if (!whole || error) {
    std::filesystem::remove(temporary, error);
    static std::atomic<bool> said{false};
    if (!said.exchange(true) && sdk::host() != nullptr)
      sdk::host()->log(2, ("compiled kernels cannot be kept in " + path.parent_path().string() +
                           "; every start compiles them anew (set CHIPSET_KERNEL_CACHE)")
                              .c_str());
  }
}

namespace {
// The log, and under it the source line of each place that it names ("…:123:45: error" of clang,
// "error: …:123:45" of PoCL, "(123): error" of NVRTC).
std::string explained(const std::string& log, const std::string& source) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < source.size();) {
    const std::size_t end = std::min(source.find('\n', begin), source.size());
    lines.push_back(std::string_view(source).substr(begin, end - begin));
    begin = end + 1;
  }
  std::string text = log;
  static const std::regex place(
      "(?::([0-9]+):[0-9]+|\\(([0-9]+)\\)): *(?:fatal )?error|error: [^\n:]*:([0-9]+):[0-9]+");
  int shown = 0;
  for (std::sregex_iterator it(log.begin(), log.end(), place), end; it != end && shown < 5; ++it) {
    const std::string number = (*it)[1].str() + (*it)[2].str() + (*it)[3].str();  // one is there
    const std::size_t line = std::strtoul(number.c_str(), nullptr, 10);
    if (line == 0 || line > lines.size()) continue;
    text += "\n  line " + number + ": " + std::string(lines[line - 1]);
    ++shown;
  }
  return text;
}
}  // namespace

// ---- the kit ----

Kit::Kit(Backend& backend) : backend_(backend), traits_(backend.traits()) {}
Kit::~Kit() = default;

Kit::Counts Kit::counts() const { return counts_; }

void* Kit::kernel(const Signature& signature, const char* name,
                  const std::function<std::string()>& make) {
  {
    std::shared_lock lock(mutex_);
    const auto found = kernels_.find(signature);
    if (found != kernels_.end()) return found->second;
  }
  std::lock_guard building(building_);
  {
    std::shared_lock lock(mutex_);
    const auto found = kernels_.find(signature);
    if (found != kernels_.end()) return found->second;
  }
  void* kernel = build(make(), name);
  std::unique_lock lock(mutex_);
  kernels_[signature] = kernel;
  return kernel;
}

void* Kit::build(const std::string& source, const char* name) {
  const std::string key = traits_.identity + "\n" + name + "\n" + source;
  if (const Binary cached = read_cached(traits_, key); !cached.empty()) {
    try {
      void* kernel = backend_.load(cached, name);
      ++counts_.from_cache;
      return kernel;
    } catch (const sdk::Error& error) {
      if (error.status() == CHIPSET_STATUS_DEVICE_LOST) throw;
      ++counts_.refused;  // another driver's, say; compiled anew below
    }
  }
  Binary binary;
  try {
    binary = backend_.compile(source, "");
  } catch (const sdk::Error& error) {
    throw sdk::Error(error.status(), "kernel '" + std::string(name) +
                                         "' does not compile: " + explained(error.what(), source));
  }
  void* kernel = backend_.load(binary, name);
  ++counts_.compiled;
  write_cached(traits_, key, binary);
  return kernel;
}

}  // namespace chipset::kit
