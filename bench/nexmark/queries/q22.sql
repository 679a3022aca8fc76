-- Url folders: the three folders between host and page.
-- sources: bid
CREATE STREAM q22 AS
  SELECT auction, bidder, price, channel,
         SPLIT(url, '/')[4] AS dir1, SPLIT(url, '/')[5] AS dir2, SPLIT(url, '/')[6] AS dir3
  FROM bid;

-- answer
SELECT auction, bidder, price, channel,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid
