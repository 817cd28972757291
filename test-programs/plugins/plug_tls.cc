// A shared object with thread-local storage that is made lazily (__tls_get_addr mallocs) and with a thread_local
// object that allocates.
#include <string>
#include <vector>
static thread_local char big[40000];
static thread_local std::vector<std::string> words(20, std::string(200, 'w'));
extern "C" int plug_touch(int i)
{
    big[i % 40000] = 1;
    words.push_back(std::string(100 + i % 100, 'v'));
    return (int)words.size() + big[(i + 1) % 40000];
}
