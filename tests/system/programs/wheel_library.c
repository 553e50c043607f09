/* Stands for a library of NVIDIA's in a wheel: its one FUNCTION says by its status that it is not Flyt's. */
enum { NOT_FLYTS = 77 };

int FUNCTION(void *first);

int FUNCTION(void *first)
{
    (void)first;
    return NOT_FLYTS;
}
