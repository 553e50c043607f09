#include "rpc/base/build_name.h"

const char flyt_build_name[] = "an-older-build";
