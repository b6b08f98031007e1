#pragma once

#include <string>

namespace ddp {

/// Names the frames of a stack that a crashed program could not name itself: in
/// a frame "#3 ?? (train+0x1234)" of the ELF file `program`, whose name that
/// is, "??" becomes what its symbol table, which is not loaded at run time, has
/// there. Other text stays as it is; so does all where the file is stripped.
std::string name_frames(const std::string& stack, const std::string& program);

} // namespace ddp
