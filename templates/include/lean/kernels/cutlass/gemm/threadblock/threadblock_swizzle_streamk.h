// No kernel of the 2.x API uses stream-K.
#pragma once
