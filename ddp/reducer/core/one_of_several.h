#pragma once

#include <common/heartbeat_page.h>
#include <ddp/internal/check.h>

namespace ddp::detail {

/// A Reducer among those of this process, and how it is told from the others.
class OneOfSeveral {
 public:
  OneOfSeveral() : number_(++made) {
    ++living;
  }
  OneOfSeveral(const OneOfSeveral&) = delete;
  OneOfSeveral& operator=(const OneOfSeveral&) = delete;
  ~OneOfSeveral() {
    --living;
  }

  void name(const std::string& first_parameter, size_t parameters) {
    text_ = detail::format(
        "{}{}, of '{}' ({}{}",
        kOfReducer,
        number_,
        first_parameter,
        parameters,
        parameters == 1 ? " parameter)" : " parameters)");
  }

  /// " of Reducer 2, of 'conv1.weight' (12 parameters)", the second that this
  /// process has made; empty where there is no other.
  std::string_view text() const {
    return living > 1 ? std::string_view(text_) : std::string_view();
  }

 private:
  inline static std::atomic<int> made{0};
  inline static std::atomic<int> living{0};
  int number_;
  std::string text_;
};

} // namespace ddp::detail
