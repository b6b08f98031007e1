#include <checkpoint/formats/common/byte_source.h>
#include <checkpoint/formats/safetensors_index.h>
#include <checkpoint/formats/safetensors_reader.h>
#include <common/bounded_json.h>
#include <ddp/internal/check.h>
#include <ddp/support/atomic_file.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

namespace ddp::detail {
namespace {

namespace fs = std::filesystem;
using Index = nlohmann::json; // ordered_json is slow to look up keys

const std::string kIndexEnd = ".safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = 100'000'000; // as for a header

/// Names of tensors, and the files that contain them.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

WeightMap read_weight_map(const std::string& path) {
  const FileSource file(path);
  DDP_CHECK(
      file.size() <= kMaxIndexBytes,
      "not an index: it has {} bytes, but the maximum is {}",
      file.size(),
      kMaxIndexBytes);
  const Index index =
      parse_bounded_json(file.text(0, file.size())).value_or(Index());
  DDP_CHECK(
      index.is_object() && index.contains("weight_map") &&
          index["weight_map"].is_object(),
      "not an index of safetensors files: it has no JSON object 'weight_map'");
  WeightMap files;
  for (const auto& [name, value] : index["weight_map"].items()) {
    const auto shard = value.is_string() ? value.get<std::string>() : "";
    DDP_CHECK(
        !shard.empty() && fs::path(shard).filename() == shard,
        "the index has {} for tensor '{}', expected the name of a file in the "
        "index's folder",
        value.dump(-1, ' ', false, Index::error_handler_t::replace),
        name);
    files.emplace_back(name, shard);
  }
  return files;
}

/// The files of the index at `path` whose names begin with its stem, so no
/// other index uses them.
std::set<std::string> former_shards(
    const std::string& path,
    const std::string& stem) {
  std::set<std::string> shards;
  try {
    for (const auto& [name, shard] : read_weight_map(path)) {
      if (shard.rfind(stem + "-", 0) == 0 &&
          fs::path(shard).extension() == ".safetensors") {
        shards.insert(shard);
      }
    }
  } catch (const c10::Error&) {
    return {}; // no valid index
  }
  return shards;
}

void remove_files(const fs::path& folder, const std::set<std::string>& files) {
  for (const auto& file : files) {
    std::error_code ignored; // remaining files only use space
    fs::remove(folder / file, ignored);
  }
}

std::vector<StateDict> split(const StateDict& tensors, int64_t max_bytes) {
  std::vector<StateDict> shards(1);
  int64_t bytes = 0;
  for (const auto& item : tensors) {
    const auto more = static_cast<int64_t>(item->nbytes());
    if (bytes > 0 && bytes + more > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().insert(item.key(), item.value());
    bytes += more;
  }
  return shards;
}

std::vector<std::string> names(const std::string& stem, size_t count) {
  std::vector<std::string> names;
  for (size_t i = 1; i <= count; ++i) {
    char end[64];
    std::snprintf(end, sizeof(end), "-%05zu-of-%05zu.safetensors", i, count);
    names.push_back(stem + end);
  }
  return names;
}

/// Names of files that do not exist.
std::vector<std::string> free_names(
    const fs::path& folder,
    const std::string& stem,
    size_t count) {
  auto found = names(stem, count);
  const auto is_taken = [&](const std::string& name) {
    return fs::exists(folder / name);
  };
  for (int i = 2; std::any_of(found.begin(), found.end(), is_taken); ++i) {
    found = names(stem + "-" + std::to_string(i), count);
  }
  return found;
}

} // namespace

bool is_safetensors_index(const std::string& path) {
  const auto name = fs::path(path).filename().string();
  return name.size() > kIndexEnd.size() &&
      name.compare(
          name.size() - kIndexEnd.size(), std::string::npos, kIndexEnd) == 0;
}

std::string with_shard_number(const std::string& path) {
  static const std::regex kShard(R"((.*)-0*(\d+)-of-0*(\d+)\.safetensors)");
  const auto text = "'" + path + "'";
  std::smatch parts;
  if (!std::regex_match(path, parts, kShard)) {
    return text;
  }
  auto index = parts[1].str() + kIndexEnd;
  static const std::regex kNumber(R"(-\d+$)"); // see free_names
  const auto other =
      std::regex_replace(parts[1].str(), kNumber, "") + kIndexEnd;
  std::error_code ignored;
  if (!fs::exists(index, ignored) && fs::exists(other, ignored)) {
    index = other;
  }
  return detail::format(
      "{} is file {} of {}; load '{}' to read all files. This file alone",
      text,
      parts[2].str(),
      parts[3].str(),
      index);
}

StateDict read_sharded_safetensors(
    const std::string& path,
    const std::function<StateDict(const std::string&)>& read_shard) {
  const auto folder = fs::path(path).parent_path();
  std::map<std::string, StateDict> shards;
  StateDict tensors;
  for (const auto& [name, shard] : read_weight_map(path)) {
    auto found = shards.find(shard);
    if (found == shards.end()) {
      auto content = read_shard((folder / shard).string());
      found = shards.emplace(shard, std::move(content)).first;
    }
    const auto* tensor = found->second.find(name);
    DDP_CHECK(
        tensor != nullptr,
        "tensor '{}' is in '{}' according to the index, but not in that file",
        name,
        shard);
    tensors.insert(name, *tensor);
  }
  return tensors;
}

void write_sharded_safetensors(
    const std::string& path,
    const StateDict& tensors,
    int64_t max_shard_bytes,
    const SafetensorsMetadata& metadata) {
  std::error_code ignored;
  DDP_CHECK(
      !fs::is_symlink(path, ignored),
      "cannot write '{}': it is a symbolic link, which would separate the "
      "index from its files; remove the link, or use the path of its target",
      path);
  const auto folder = fs::path(path).parent_path();
  const auto name = fs::path(path).filename().string();
  const auto stem = name.substr(0, name.size() - kIndexEnd.size());
  const auto shards = split(tensors, max_shard_bytes);
  const auto files = free_names(folder, stem, shards.size());
  const auto former = former_shards(path, stem);

  auto weights = Index::object();
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const auto& item : shards[i]) {
      weights[item.key()] = files[i];
      total += static_cast<int64_t>(item->nbytes());
    }
  }
  const auto text = Index{
      {"metadata", {{"total_size", total}}},
      {"weight_map",
       weights}}.dump(2);
  std::set<std::string> written;
  try {
    for (size_t i = 0; i < shards.size(); ++i) {
      write_safetensors((folder / files[i]).string(), shards[i], metadata);
      written.insert(files[i]);
    }
    AtomicFile index(path);
    index.write(text.data(), text.size());
    index.commit();
  } catch (...) {
    if (former_shards(path, stem).count(files[0]) == 0) { // not committed
      remove_files(folder, written);
    }
    throw;
  }
  remove_files(folder, former);
}

} // namespace ddp::detail
