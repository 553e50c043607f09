/* The library's one instance, and ids that are unique in it. */
#include "cpu/softgpu/driver/driver.h"

/* Set once, after it is complete. */
static struct flyt_soft_driver *_Atomic the_driver;

struct flyt_soft_driver *flyt_soft_driver(void)
{
    return atomic_load_explicit(&the_driver, memory_order_acquire);
}

void flyt_soft_driver_set(struct flyt_soft_driver *driver)
{
    atomic_store_explicit(&the_driver, driver, memory_order_release);
}

uint64_t flyt_soft_id_new(void)
{
    return atomic_fetch_add(&flyt_soft_driver()->next_id, 1) + 1;
}
