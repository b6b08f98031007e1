#include <ATen/ATen.h>
#include <checkpoint/command/leaves.h>
#include <checkpoint/command/subcommands.h>
#include <checkpoint/command/text.h>
#include <checkpoint/prepared_file.h>
#include <ddp/checkpoint/checkpoint_file.h>
#include <ddp/support/plain_tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <sstream>
#include <unordered_map>

namespace ddp::command {
namespace {

using Leaves = std::vector<Leaf>;

/// How much values may differ, as with torch.isclose. Without a tolerance,
/// values must have equal bits.
struct Tolerance {
  double relative = 0;
  double absolute = 0;

  bool any() const {
    return relative > 0 || absolute > 0;
  }
};

/// The differences of two tensors of one shape and dtype.
struct TensorDifference {
  int64_t elements = 0;
  /// The number of differing elements with a NaN in at least one tensor.
  int64_t with_nan = 0;
  /// The largest difference of the other elements.
  double largest = 0;
};

// A mask of the elements whose bits differ, for contiguous tensors.
at::Tensor differing_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.unsqueeze(-1).view(at::kByte);
  };
  return bytes(a).ne(bytes(b)).any(-1);
}

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(tensor.is_complex() ? at::kComplexDouble : at::kDouble);
}

void add_piece(
    const at::Tensor& a,
    const at::Tensor& b,
    const Tolerance& tolerance,
    TensorDifference& difference) {
  if (std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) {
    return;
  }
  const auto differing = differing_bits(a, b);
  auto left = wide(a).masked_select(differing);
  auto right = wide(b).masked_select(differing);
  if (tolerance.any()) {
    const auto far = at::isclose(
                         left,
                         right,
                         tolerance.relative,
                         tolerance.absolute,
                         /*equal_nan=*/true)
                         .logical_not();
    left = left.masked_select(far);
    right = right.masked_select(far);
  }
  const auto nan = at::isnan(left).logical_or(at::isnan(right));
  const auto distance = (left - right).abs().masked_select(nan.logical_not());
  difference.elements += left.numel();
  difference.with_nan += nan.sum().item<int64_t>();
  if (distance.numel() > 0) {
    difference.largest =
        std::max(difference.largest, distance.max().item<double>());
  }
}

TensorDifference difference_of(
    const at::Tensor& a,
    const at::Tensor& b,
    const Tolerance& tolerance) {
  constexpr int64_t kPiece = 1 << 20; // limits the memory of copies
  const auto left = detail::plain_tensor(a).flatten();
  const auto right = detail::plain_tensor(b).flatten();
  TensorDifference difference;
  for (int64_t begin = 0; begin < left.numel(); begin += kPiece) {
    const auto count = std::min(kPiece, left.numel() - begin);
    add_piece(
        left.narrow(0, begin, count),
        right.narrow(0, begin, count),
        tolerance,
        difference);
  }
  return difference;
}

struct DiffOptions {
  std::string a;
  std::string b;
  Tolerance tolerance;
};

std::string describe(const c10::IValue& value) {
  return value.isTensor()
      ? dtype_text(value.toTensor()) + " " + shape_text(value.toTensor())
      : value_text(value, kLineWidth / 2);
}

std::string compare_tensors(
    const at::Tensor& a,
    const at::Tensor& b,
    const Tolerance& tolerance) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return describe(a) + " against " + describe(b);
  }
  const auto difference = difference_of(a, b, tolerance);
  if (difference.elements == 0) {
    return "";
  }
  std::ostringstream text;
  text << grouped(static_cast<uint64_t>(difference.elements)) << " of "
       << counted(static_cast<uint64_t>(a.numel()), "element") << " differ";
  if (difference.with_nan < difference.elements) {
    text << ", by " << difference.largest << " at most";
  }
  if (difference.with_nan > 0) {
    text << "; " << grouped(static_cast<uint64_t>(difference.with_nan))
         << " where one is NaN";
  }
  return text.str();
}

bool close(const c10::IValue& a, const c10::IValue& b, const Tolerance& by) {
  const auto is_number = [](const c10::IValue& value) {
    return value.isDouble() || value.isInt();
  };
  if (!by.any() || !is_number(a) || !is_number(b)) {
    return false;
  }
  const auto left = a.toScalar().toDouble();
  const auto right = b.toScalar().toDouble();
  return std::abs(left - right) <= by.absolute + by.relative * std::abs(right);
}

// The text of the difference; empty if there is none.
std::string compare(
    const c10::IValue& a,
    const c10::IValue& b,
    const Tolerance& tolerance) {
  if (a.isTensor() && b.isTensor()) {
    return compare_tensors(a.toTensor(), b.toTensor(), tolerance);
  }
  constexpr size_t kWhole = std::numeric_limits<size_t>::max();
  const bool equal = !a.isTensor() && !b.isTensor() &&
      value_text(a, kWhole) == value_text(b, kWhole);
  return equal || close(a, b, tolerance)
      ? ""
      : describe(a) + " against " + describe(b);
}

/// The leaves of a file, and the places of values that cannot be read.
struct Contents {
  Leaves leaves;
  std::vector<std::string> omitted;
};

Contents read_contents(const std::string& path) {
  Contents contents;
  const auto value = detail::read_checkpoint(
      path, LoadOptions().mmap(true).strict(false), &contents.omitted);
  std::sort(contents.omitted.begin(), contents.omitted.end());
  contents.leaves = leaves_of(value, /*whole_lists=*/false);
  return contents;
}

void print_omitted(const std::string& path, const Contents& contents) {
  for (const auto& place : contents.omitted) {
    std::cout << "not readable in " << path << ": " << printable(place) << '\n';
  }
}

std::unordered_map<std::string, c10::IValue> by_name(const Leaves& leaves) {
  std::unordered_map<std::string, c10::IValue> values;
  for (const auto& leaf : leaves) {
    values.emplace(leaf.name, leaf.value);
  }
  return values;
}

bool print_differences(
    const Leaves& a,
    const Leaves& b,
    const DiffOptions& options) {
  const auto in_a = by_name(a);
  const auto in_b = by_name(b);
  bool differ = false;
  const auto print = [&](const std::string& text) {
    differ = true;
    std::cout << text << '\n';
  };
  for (const auto& leaf : a) {
    const auto name = name_text(leaf.name);
    const auto other = in_b.find(leaf.name);
    if (other == in_b.end()) {
      print("only in " + options.a + ": " + name + ", " + describe(leaf.value));
      continue;
    }
    const auto text = compare(leaf.value, other->second, options.tolerance);
    if (!text.empty()) {
      print(name + ": " + text);
    }
  }
  for (const auto& leaf : b) {
    if (in_a.count(leaf.name) == 0) {
      const auto name = name_text(leaf.name);
      print("only in " + options.b + ": " + name + ", " + describe(leaf.value));
    }
  }
  return differ;
}

} // namespace

void add_diff(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("diff", "Reports how two checkpoints differ.");
  const auto options = std::make_shared<DiffOptions>();
  command->add_option("A", options->a)->required()->type_name("");
  command->add_option("B", options->b)->required()->type_name("");
  command
      ->add_option(
          "--rtol", options->tolerance.relative, "relative tolerance (0)")
      ->check(CLI::Validator(CLI::NonNegativeNumber).description(""))
      ->type_name("X");
  command
      ->add_option(
          "--atol", options->tolerance.absolute, "absolute tolerance (0)")
      ->check(CLI::Validator(CLI::NonNegativeNumber).description(""))
      ->type_name("X");
  command->footer(
      "Tensors and values are compared by name, and bit by bit if no tolerance "
      "is\n"
      "given; the files may be of different formats. Objects that cannot be "
      "read, such\n"
      "as an argparse.Namespace, are listed; they differ if only one file has "
      "them.\n"
      "Exit code: 0 if nothing differs, 1 if something does, 2 if a file\n"
      "cannot be read.\n"
      "\n"
      "Example: ddp-checkpoint diff monday.pt tuesday.pt --rtol 1e-5");
  command->callback([options, &exit_code] {
    const auto a = read_contents(options->a);
    const auto b = read_contents(options->b);
    print_omitted(options->a, a);
    print_omitted(options->b, b);
    const bool differ = print_differences(a.leaves, b.leaves, *options);
    exit_code = differ || a.omitted != b.omitted ? kExitNegative : 0;
  });
}

} // namespace ddp::command
