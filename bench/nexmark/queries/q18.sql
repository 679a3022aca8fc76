-- Last bid of each bidder on each auction: deduplication. (Of bids at the same time the dearest.)
-- sources: bid
CREATE TABLE q18 AS
  SELECT auction, bidder, price, channel, url, dateTime, extra FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC, extra) AS rn FROM bid) q
  WHERE rn = 1;

-- answer
SELECT auction, bidder, price, channel, url, dateTime, extra FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC, extra) AS rn FROM bid) q
WHERE rn = 1
