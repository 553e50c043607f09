#include "rpc/base/build_name.h"

__attribute__((weak)) const char flyt_build_name[] = "unnamed";
