#include "chipset/abi_check.h"
