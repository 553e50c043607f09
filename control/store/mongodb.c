#include <errno.h>
#include "control/store/store_ops.h"
int flyt_mongodb_open(const char *uri, unsigned timeout_ms, const struct flyt_schema *schema, struct flyt_error *err,
                      struct flyt_store **ret_store)
{
    return flyt_error_set(err, -ENOTSUP, "this build has no MongoDB: say sqlite:///PATH");
}
