#include <launcher/output/rank_output.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include <common/text.h>
#include <launcher/private_folder.h>

namespace ddp {
namespace {

void make_folders_of(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    mkdir(path.substr(0, slash).c_str(), 0700); // open() reports errors
  }
}

constexpr const char* kTime = "${time}";

std::string template_of(
    const OutputOptions& options,
    const JobEnvironment& job) {
  if (options.line_prefix) {
    return *options.line_prefix;
  }
  return job.world_size > 1 ? "[${rank}] " : "";
}

std::string time_of_day(std::time_t now) {
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 16> text;
  return {text.data(), strftime(text.data(), text.size(), "%H:%M:%S", &local)};
}

bool chosen(const StreamChoice& choice, const RankStream& rank) {
  const int bit = rank.stream == Stream::kOut ? 1 : 2;
  return (choice.of(rank.local_rank) & bit) != 0;
}

// In the folder of the rank's attempt, which no other run uses.
std::unique_ptr<LogFile> open_log(
    const OutputOptions& options,
    const RankStream& rank,
    const std::string& name,
    Screen& screen) {
  return std::make_unique<LogFile>(
      attempt_folder(options.log_dir, rank.attempt) + "/" + name +
          (rank.stream == Stream::kOut ? "stdout.log" : "stderr.log"),
      [&screen](const std::string& message) { screen.message(message); });
}

bool is_shown(const OutputOptions& options, const RankStream& rank) {
  const std::set<int>& ranks = options.shown_ranks;
  const bool only_in_file = !options.log_dir.empty() &&
      chosen(options.redirects, rank) && !chosen(options.tee, rank);
  return !only_in_file && (ranks.empty() || ranks.count(rank.local_rank) > 0);
}

} // namespace

LogFile::LogFile(std::string path, Report report)
    : path_(std::move(path)), report_(std::move(report)) {
  make_folders_of(path_);
  open();
}

void LogFile::write(std::string_view bytes) {
  if (file_ || open()) {
    if (const int error = write_all(file_.get(), bytes)) {
      report("write", error);
    }
  }
}

bool LogFile::open() {
  file_ = FileDescriptor(::open(
      path_.c_str(),
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY,
      0600));
  if (!file_) {
    report("open", errno);
  }
  return bool(file_);
}

void LogFile::report(const char* what, int error) {
  if (!reported_) {
    reported_ = true;
    report_(
        std::string("ddprun: cannot ") + what + " the log file " + path_ +
        " (" + std::strerror(error) + "); the ranks' output to it is lost");
  }
}

LinePrefix::LinePrefix(
    const OutputOptions& options,
    const JobEnvironment& job,
    const RankStream& rank)
    : text_(template_of(options, job)) {
  const std::pair<const char*, std::string> values[] = {
      {"${rank}", std::to_string(rank.rank)},
      {"${local_rank}", std::to_string(rank.local_rank)},
      {"${role}", job.role},
      {"${role_name}", job.role},
      {"${node}", std::to_string(job.node_rank)},
      {"${host}", job.host}};
  for (const auto& [mention, value] : values) {
    text_ = replaced(text_, mention, value);
  }
  has_time_ = text_.find(kTime) != std::string::npos;
}

std::string LinePrefix::text(std::time_t now) const {
  return has_time_ ? replaced(text_, kTime, time_of_day(now)) : text_;
}

RankOutput::RankOutput(
    const OutputOptions& options,
    const JobEnvironment& job,
    const RankStream& rank,
    int number,
    Screen& screen,
    std::shared_ptr<LastLines> last_lines,
    std::shared_ptr<SharedErrors> errors)
    : rank_(rank),
      number_(number),
      screen_(screen),
      last_lines_(std::move(last_lines)),
      errors_(std::move(errors)),
      shown_(is_shown(options, rank)),
      filters_(
          rank.stream == Stream::kOut ? options.stdout_filters
                                      : options.stderr_filters),
      terminal_(shown_ && screen.is_terminal(rank.stream)),
      prefix_(options, job, rank),
      emit_([this](std::string_view text, bool ends_line) {
        emit(text, ends_line);
      }) {
  if ((chosen(options.redirects, rank) || chosen(options.tee, rank)) &&
      writes_files(options)) {
    log_ =
        open_log(options, rank, std::to_string(rank.local_rank) + "/", screen);
    if (!filters_.empty()) {
      filtered_ = open_log(options, rank, "filtered_", screen);
    }
  }
  needs_lines_ = shown_ || filtered_ || last_lines_;
}

void RankOutput::renumber(
    const OutputOptions& options,
    const JobEnvironment& job) {
  rank_.rank = job.first_rank + rank_.local_rank;
  prefix_ = LinePrefix(options, job, rank_);
}

void RankOutput::take(std::string_view bytes) {
  if (log_) {
    log_->write(bytes);
  }
  if (!needs_lines_) {
    return;
  }
  now_ = std::time(nullptr);
  lines_.feed(bytes, emit_);
  show_held_error(); // ranks write an error in one piece
}

void RankOutput::finish() {
  lines_.finish(emit_);
  show_held_error();
}

void RankOutput::emit(std::string_view text, bool ends_line) {
  if (shown_) {
    show(text, ends_line);
  }
  if (last_lines_) {
    last_lines_->add(text);
  }
  if (filtered_) {
    filter(text);
  }
}

void RankOutput::show(std::string_view text, bool ends_line) {
  const bool goes_on =
      !held_error_.empty() && text.substr(0, 2) == SharedErrors::kIndent;
  if (!goes_on) {
    show_held_error();
  }
  if (errors_ && ends_line && (goes_on || SharedErrors::begins(text))) {
    held_error_.emplace_back(text);
    return;
  }
  screen_.add(rank_.stream, number_, prefix_.text(now_), text, ends_line);
}

void RankOutput::show_held_error() {
  if (held_error_.empty()) {
    return;
  }
  std::string text;
  for (const auto& line : held_error_) {
    text += line + "\n";
  }
  if (errors_->is_to_be_shown(rank_.attempt, rank_.rank, text)) {
    for (const auto& line : held_error_) {
      screen_.add(rank_.stream, number_, prefix_.text(now_), line, true);
    }
  }
  held_error_.clear();
}

void RankOutput::filter(std::string_view text) {
  const bool found = std::any_of(
      filters_.begin(), filters_.end(), [&](const std::string& part) {
        return text.find(part) != std::string_view::npos;
      });
  if (found) {
    filtered_->write(prefix_.text(now_) + std::string(text) + "\n");
  }
}

std::string RankOutput::progress() {
  return terminal_ && rank_.rank == 0 && lines_.redraws()
      ? prefix_.text(now_) + lines_.unfinished()
      : "";
}

} // namespace ddp
