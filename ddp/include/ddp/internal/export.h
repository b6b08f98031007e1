#pragma once

/// Mark exported symbols; the library hides all others, and of an exported
/// class those marked as local.
#define DDP_API __attribute__((visibility("default")))
#define DDP_LOCAL __attribute__((visibility("hidden")))
