#pragma once

/// Marks what the library exports; it hides all else, and of an exported class
/// what is marked as local.
#define DDP_API __attribute__((visibility("default")))
#define DDP_LOCAL __attribute__((visibility("hidden")))
