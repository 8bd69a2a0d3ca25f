// No kernel uses the instructions of sm_120 alone.
#pragma once
