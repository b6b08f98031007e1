#pragma once

#include <string>

namespace ddp {

/// Names the frames of a stack that a crashed program could not name. In a
/// frame "#3 ?? (train+0x1234)" of the ELF file `program`, the "??" becomes the
/// symbol at this address in the file's symbol table, which is not loaded at
/// run time. Other text does not change; nothing changes if the file is
/// stripped.
std::string name_frames(const std::string& stack, const std::string& program);

} // namespace ddp
