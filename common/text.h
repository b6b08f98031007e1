#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// The lines of `text`, without their newlines.
std::vector<std::string> split_lines(const std::string& text);

/// The parts of a list such as "0,2,GPU-1". An empty part at the end is
/// ignored.
std::vector<std::string> split_list(const std::string& text);

/// The numbers of a list such as "0-2,8", up to the first text that is not a
/// number or a range.
std::vector<int> parse_number_list(const std::string& text);

/// "0-2,8" for {0, 1, 2, 8}, which must be sorted.
std::string number_list(const std::vector<int>& numbers);

/// "rank 3", "ranks 0-2,5".
std::string name_ranks(const std::vector<int>& ranks);

/// "512 B", "44.6 MiB".
std::string size_text(uint64_t bytes);

/// "11,181,642".
std::string grouped(uint64_t number);

/// Whether a byte of UTF-8 is the first byte of a character.
inline bool starts_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
}

/// The number of UTF-8 characters in `text`.
size_t character_count(const std::string& text);

/// "13 ms", "12.4 s", "3 min 20 s".
std::string describe_time(std::chrono::nanoseconds time);

/// An error's text without the rank that reports it, so that the texts of
/// several ranks can be compared: "c10::DistBackendError: lost" for
/// "c10::DistBackendError: rank 1 of 3 on host a: lost".
std::string without_speaker(const std::string& text);

/// `text` with each occurrence of `mention` replaced by `by`.
std::string replaced(
    std::string text,
    const std::string& mention,
    const std::string& by);

/// The text before the first newline.
std::string first_line(const std::string& text);

} // namespace ddp
