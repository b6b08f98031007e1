#include <launcher/report/activity.h>

#include <algorithm>

#include <common/heartbeat_page.h>

namespace ddp {
namespace {

bool starts_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

} // namespace

std::string call_of(const std::string& activity) {
  if (starts_with(activity, "after ")) {
    return "";
  }
  if (starts_with(activity, "bucket ")) {
    // Ranks differ in the bucket by nothing but their speed.
    const size_t owner = std::min(activity.find(kOfReducer), activity.size());
    return "the reduction of gradients" + activity.substr(owner);
  }
  const size_t colon = activity.find(": ");
  const size_t object = activity.find("(\"");
  if (object > colon || object == std::string::npos) {
    return activity.substr(0, colon);
  }
  // The object may have a colon of its own.
  const size_t end = activity.find("\"): ", object);
  return end == std::string::npos ? activity : activity.substr(0, end + 2);
}

std::string name_of_call(const std::string& call) {
  return call.substr(0, std::min(call.find("(\""), call.find(" of ")));
}

std::string call_before(const std::string& activity) {
  const std::string after = "after ";
  return starts_with(activity, after) && !starts_with(activity, "after step ")
      ? activity.substr(after.size())
      : "";
}

} // namespace ddp
