/* Stands in for a node's cuBLAS and cuFFT of an older minor version: what is asked for the version, and nothing else.
 */
static int tell(int what, int major, int *ret_value)
{
    *ret_value = what == 0 ? major : 0; /* libraryPropertyType: the major version, the minor one, the patch level */
    return 0;
}

int cublasGetProperty(int what, int *ret_value);
int cufftGetProperty(int what, int *ret_value);

int cublasGetProperty(int what, int *ret_value)
{
    return tell(what, 13, ret_value);
}

int cufftGetProperty(int what, int *ret_value)
{
    return tell(what, 11, ret_value);
}
