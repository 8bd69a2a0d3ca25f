// No kernel multiplies complex numbers.
#pragma once
