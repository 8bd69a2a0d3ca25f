// No kernel multiplies without tensor cores.
#pragma once
