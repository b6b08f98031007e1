#include <launcher/output/line_prefix.h>

#include <array>
#include <utility>

#include <common/text.h>

namespace ddp {
namespace {

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

} // namespace

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

} // namespace ddp
