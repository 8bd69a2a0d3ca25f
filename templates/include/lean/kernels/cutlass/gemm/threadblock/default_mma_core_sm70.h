// No kernel is for Volta.
#pragma once
