#pragma once

#include <common/heartbeat_page.h>
#include <ddp/internal/check.h>

namespace ddp::detail {

/// A Reducer among those of this process, and how it is told from the others.
class OneOfSeveral {
 public:
  OneOfSeveral() {
    ++number;
  }
  OneOfSeveral(const OneOfSeveral&) = delete;
  OneOfSeveral& operator=(const OneOfSeveral&) = delete;
  ~OneOfSeveral() {
    --number;
  }

  void name(const std::string& first_parameter, size_t parameters) {
    text_ = detail::format(
        "{}'{}' ({}{}",
        kOfReducer,
        first_parameter,
        parameters,
        parameters == 1 ? " parameter)" : " parameters)");
  }

  /// " of the Reducer of 'conv1.weight' (12 parameters)"; empty where there is
  /// no other.
  std::string_view text() const {
    return number > 1 ? std::string_view(text_) : std::string_view();
  }

 private:
  inline static std::atomic<int> number{0};
  std::string text_;
};

} // namespace ddp::detail
