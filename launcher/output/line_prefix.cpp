#include <launcher/output/line_prefix.h>

#include <array>
#include <map>
#include <string_view>

namespace ddp {
namespace {

std::string template_of(const OutputOptions& options, const JobNames& names) {
  if (options.line_prefix) {
    return *options.line_prefix;
  }
  return names.world_size > 1 ? "[${rank}] " : "";
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
    const JobNames& names,
    const RankStream& rank)
    : parts_(1) {
  const std::map<std::string_view, std::string> values{
      {"rank", std::to_string(rank.rank)},
      {"local_rank", std::to_string(rank.local_rank)},
      {"role", names.role},
      {"role_name", names.role},
      {"node", std::to_string(names.node)},
      {"host", names.host}};
  const std::string form = template_of(options, names);
  std::string_view rest = form;
  for (size_t at; (at = rest.find("${")) != std::string_view::npos;) {
    const size_t end = rest.find('}', at);
    if (end == std::string_view::npos) {
      break;
    }
    const std::string_view name = rest.substr(at + 2, end - at - 2);
    parts_.back() += rest.substr(0, at);
    const auto value = values.find(name);
    if (name == "time") {
      parts_.emplace_back();
    } else if (value != values.end()) {
      parts_.back() += value->second;
    } else {
      parts_.back() += rest.substr(at, end + 1 - at);
    }
    rest.remove_prefix(end + 1);
  }
  parts_.back() += rest;
}

const std::string& LinePrefix::text(std::time_t now) {
  const bool timeless = parts_.size() == 1;
  if (made_at_ == -1 || (!timeless && now != made_at_)) {
    made_at_ = now;
    text_ = parts_.front();
    for (size_t i = 1; i < parts_.size(); ++i) {
      text_ += time_of_day(now) + parts_[i];
    }
  }
  return text_;
}

} // namespace ddp
