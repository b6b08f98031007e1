#include <checkpoint/checkpoint_folder.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/internal/check.h>
#include <ddp/support/atomic_file.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <system_error>
#include <tuple>

namespace ddp::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLatest = "latest";
constexpr const char* kEpoch = ".epoch";

// The whole text must be the number.
template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const auto* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  return result.ec == std::errc() && result.ptr == end ? std::optional(number)
                                                       : std::nullopt;
}

// The shortest text that `parse` converts back to this number.
std::string text_of(double number) {
  char text[32];
  const auto result = std::to_chars(std::begin(text), std::end(text), number);
  return {text, result.ptr};
}

std::optional<FolderEntry> entry_at(const fs::path& path) {
  static const std::regex kName(
      R"(step-(-?\d+)(?:_metric-(.+))?\.(?:pt|pth|safetensors))");
  const auto name = path.filename().string();
  std::smatch parts;
  if (!std::regex_match(name, parts, kName)) {
    return std::nullopt;
  }
  const auto step = parse<int64_t>(parts[1].str());
  const auto metric = parse<double>(parts[2].str());
  if (!step || metric.has_value() != parts[2].matched) {
    return std::nullopt;
  }
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return FolderEntry{*step, metric, path.string(), written};
}

void check(
    const std::error_code& error,
    const char* what,
    const std::string& path) {
  DDP_CHECK(
      !error,
      "{} '{}' failed: {}{}",
      what,
      path,
      error.message(),
      write_advice(error.value()));
}

// The errors of file systems such as FAT and some of FUSE.
bool has_no_links(const std::error_code& error) {
  return error == std::errc::operation_not_permitted ||
      error == std::errc::operation_not_supported ||
      error == std::errc::function_not_supported;
}

// NaN is worse than any number.
bool is_better(const FolderEntry& a, const FolderEntry& b, bool higher) {
  if (std::isnan(*a.metric) || std::isnan(*b.metric)) {
    return !std::isnan(*a.metric) && std::isnan(*b.metric);
  }
  return higher ? *a.metric > *b.metric : *a.metric < *b.metric;
}

// The paths of the retained checkpoints.
std::set<std::string> kept(
    std::vector<FolderEntry> entries, // the newest step first
    const Retention& retention) {
  std::set<std::string> result;
  const auto keep = [&](int64_t count) {
    for (const auto& entry : entries) {
      if (count-- <= 0) {
        return;
      }
      result.insert(entry.path);
    }
  };
  keep(retention.last);
  entries.erase(
      std::remove_if(
          entries.begin(),
          entries.end(),
          [](const auto& entry) { return !entry.metric; }),
      entries.end());
  std::stable_sort(
      entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
        return is_better(a, b, retention.higher_is_better);
      });
  keep(retention.best);
  return result;
}

// A temporary name, left by a process that was killed in a save.
bool is_leftover(const fs::path& path) {
  static const std::regex kName(
      R"(\.(?:step-\d+(?:_metric-.+)?\.(?:pt|pth|safetensors)|latest))"
      R"(\.tmp\.[\d.]+)");
  return std::regex_match(path.filename().string(), kName);
}

// N of "JOB:N"; 0 for other texts.
int64_t epoch_in(const std::string& text) {
  const auto colon = text.rfind(':');
  return colon == std::string::npos
      ? 0
      : parse<int64_t>(std::string_view(text).substr(colon + 1)).value_or(0);
}

std::string job_in(const std::string& text) {
  return text.substr(0, text.rfind(':'));
}

// Makes the next read of the file read the disk, if the file system can:
// written data are also in memory, even if the disk has corrupted them.
void drop_cached_pages(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check({file ? 0 : errno, std::generic_category()}, "opening", path);
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

} // namespace

CheckpointFolder::CheckpointFolder(std::string path) : path_(std::move(path)) {
  DDP_CHECK_VALUE(!path_.empty(), "the path of the checkpoint folder is empty");
  std::error_code ignored; // a removed working folder
  place_ = fs::absolute(path_, ignored);
}

std::vector<fs::path> CheckpointFolder::files() const {
  std::vector<fs::path> result;
  std::error_code error;
  for (fs::directory_iterator file(place_, error), end; !error && file != end;
       file.increment(error)) {
    result.push_back(file->path());
  }
  if (error != std::errc::no_such_file_or_directory) {
    check(error, "reading the folder", path_);
  }
  return result;
}

void CheckpointFolder::look() const {
  auto place = place_;
  std::error_code error;
  const auto type = [&] { return fs::status(place, error).type(); };
  while (type() == fs::file_type::not_found && place.has_relative_path()) {
    place = place.parent_path();
  }
  DDP_CHECK_VALUE(
      type() == fs::file_type::directory || error,
      "CheckpointManager: '{}' cannot be a folder: '{}' is a file",
      path_,
      place.string());
  if (access(place.c_str(), W_OK | X_OK) != 0) {
    TORCH_WARN(detail::format(
        "ddp: CheckpointManager cannot save to '{}': {}",
        path_,
        std::strerror(errno)));
  }
}

std::vector<FolderEntry> CheckpointFolder::entries() const {
  std::vector<FolderEntry> result;
  for (const auto& file : files()) {
    if (auto entry = entry_at(file)) {
      result.push_back(*std::move(entry));
    }
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
    return std::tie(b.step, b.written, a.path) <
        std::tie(a.step, a.written, b.path);
  });
  return result;
}

FolderEntry CheckpointFolder::new_entry(
    int64_t step,
    std::optional<double> metric,
    const std::string& extension) const {
  std::error_code error;
  fs::create_directories(place_, error);
  check(error, "making the folder", path_);
  for (const auto& entry : metric ? std::vector<FolderEntry>() : entries()) {
    if (!metric && entry.step == step && corrupt_.count(entry.path) == 0) {
      metric = entry.metric;
    }
  }
  auto name = "step-" + std::to_string(step);
  if (metric) {
    name += "_metric-" + text_of(*metric);
  }
  return {step, metric, path_of(name + extension), {}};
}

/// Whether this process holds the folder's lock, or there can be none.
bool CheckpointFolder::lock() {
  if (lock_) {
    return true;
  }
  // A lock of the folder itself adds no file, and ends with the process.
  FileDescriptor folder(
      ::open(place_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) {
    return true; // a folder may be writable and not readable
  }
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return false;
  }
  lock_ = std::move(folder);
  return true;
}

void CheckpointFolder::claim() {
  const bool locked = lock(); // before the contents are read
  take(/*only_own_job=*/!locked);
  DDP_CHECK(
      locked || succeeds_,
      "another process or CheckpointManager writes checkpoints to '{}': "
      "another job, a rank whose CheckpointManager was not given the group, or "
      "an earlier manager of this program, which must be destroyed first; use "
      "a separate folder for each, and pass the group on all ranks",
      path_);
}

void CheckpointFolder::take(bool only_own_job) {
  const char* variable = std::getenv("DDP_EPOCH");
  const std::string own = variable ? variable : "";
  if (own.empty() || !fs::is_directory(place_)) {
    return;
  }
  const auto epoch = path_of(kEpoch);
  std::string found;
  std::ifstream(epoch) >> found;
  const bool is_same = job_in(found) == job_in(own);
  if (only_own_job && !is_same) {
    return;
  }
  const bool is_later = is_same && epoch_in(found) > epoch_in(own);
  const bool is_another = !taken_by_.empty() && !found.empty() &&
      job_in(found) != job_in(taken_by_);
  DDP_CHECK(
      !is_later && !is_another,
      "the checkpoint folder '{}' was taken over by {} ({}), but this rank's "
      "DDP_EPOCH is {}. End this rank",
      path_,
      is_later ? "a later epoch of this job" : "another job",
      found,
      own);
  succeeds_ = succeeds_ || (is_same && found != own);
  if (found != own) {
    AtomicFile written(epoch);
    written.write(own.data(), own.size());
    written.commit();
  }
  taken_by_ = own;
}

void CheckpointFolder::set_latest(const std::string& path) const {
  const auto link = path_of(kLatest);
  const auto temporary = path_of(
      std::string(".") + kLatest + ".tmp." + std::to_string(::getpid()));
  std::error_code error;
  fs::remove(temporary, error); // left by a process with the same id
  fs::create_symlink(fs::path(path).filename(), temporary, error);
  if (has_no_links(error)) {
    TORCH_WARN_ONCE(
        "ddp: CheckpointManager makes no link 'latest' in '",
        path_,
        "', whose file system has no symbolic links: ",
        error.message());
    return;
  }
  check(error, "making the link", temporary);
  fs::rename(temporary, link, error); // replaces the old link atomically
  if (error) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
  }
  check(error, "making the link", link);
}

void CheckpointFolder::prune(
    const FolderEntry& newest,
    const Retention& retention) {
  corrupt_.erase(newest.path);
  std::vector<FolderEntry> good;
  std::vector<std::string> removed;
  for (const auto& file : files()) {
    if (is_leftover(file)) {
      removed.push_back(file.string());
    }
  }
  for (auto& entry : entries()) {
    if (entry.step == newest.step && entry.path != newest.path) {
      removed.push_back(entry.path);
    } else if (corrupt_.count(entry.path) == 0) {
      good.push_back(std::move(entry));
    }
  }
  const auto stay = kept(good, retention);
  for (const auto& entry : good) {
    if (stay.count(entry.path) == 0 && entry.path != newest.path) {
      removed.push_back(entry.path);
    }
  }
  if (removed.empty()) {
    return;
  }
  drop_cached_pages(newest.path);
  verify_checkpoint_file(newest.path);
  for (const auto& path : removed) {
    std::error_code error;
    fs::remove(path, error);
    check(error, "removing", path);
  }
}

} // namespace ddp::detail
