#pragma once

/// DDP_API marks exported symbols; all others are hidden. DDP_LOCAL marks
/// hidden members of an exported class.
#define DDP_API __attribute__((visibility("default")))
#define DDP_LOCAL __attribute__((visibility("hidden")))
